#!/usr/bin/env bash
# Runs the loom models of the lock-free parts. LOOM_MAX_PREEMPTIONS bounds them, 3 by default.
source "$(dirname "$0")/lib.sh"
LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-3} RUSTFLAGS="--cfg sinew_loom" \
    cargo test -p sinew-context -p sinew-models --lib --release --target-dir target/loom
