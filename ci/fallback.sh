#!/usr/bin/env bash
# The paths that this machine would not take by itself: guards by mprotect, pages that are touched
# one by one, marks without /proc; and panic = "abort".
source "$(dirname "$0")/lib.sh"
RUSTFLAGS="--cfg sinew_force_fallback" \
    cargo test -p sinew-context --tests --target-dir target/fallback
# Nothing can be unwound there: a suspended fiber that is dropped ends the process with a message.
out=$(RUSTFLAGS="-C panic=abort" \
    cargo run -q -p sinew-context --example drop_suspended --target-dir target/abort 2>&1 || true)
grep -q 'cannot be unwound under panic = "abort"' <<<"$out" || {
    echo "under panic = \"abort\" the example said instead: $out" >&2
    exit 1
}
echo "panic = \"abort\": 1 passed"
