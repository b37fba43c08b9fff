#!/usr/bin/env bash
# Format and lints, warnings as errors, over the workspace and the benchmarks; shell scripts too.
source "$(dirname "$0")/lib.sh"
cargo fmt --all --check
cargo clippy --workspace --all-targets --all-features -- -D warnings
(cd bench && cargo fmt --check && cargo clippy --all-targets -- -D warnings)
if need shellcheck; then
    shellcheck -x -P ci .ci/run ci/*.sh
else
    echo "LEFT OUT: shellcheck cannot be installed here, so the scripts were not linted"
fi
