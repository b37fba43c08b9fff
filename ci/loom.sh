#!/usr/bin/env bash
# Model checks of the lock-free parts, bounded.
source "$(dirname "$0")/lib.sh"
LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-3} RUSTFLAGS="--cfg sinew_loom" \
    cargo test -p sinew-context -p sinew --lib --release --target-dir target/loom
