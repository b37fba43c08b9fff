#!/usr/bin/env bash
# Checks the format and the lints of the workspace, of the benchmarks and of the shell scripts.
# Warnings are errors.
source "$(dirname "$0")/lib.sh"
cargo fmt --all --check
cargo clippy --workspace --all-targets --all-features -- -D warnings
(cd bench && cargo fmt --check && cargo clippy --all-targets -- -D warnings)
if need shellcheck; then
    shellcheck -x -P ci .ci/run ci/*.sh
else
    echo "LEFT OUT: shellcheck cannot be installed here, so the scripts were not linted"
fi
