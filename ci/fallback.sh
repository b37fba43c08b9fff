#!/usr/bin/env bash
# The paths that this machine would not take by itself: guards by mprotect, pages that are touched
# one by one, marks without /proc; yields before every wait; migratable fibers that move whenever
# they can; calls that are interrupted, would block, or are done in part; and panic = "abort".
source "$(dirname "$0")/lib.sh"
functions_only
here_with fallback --cfg sinew_force_fallback
cargo test -p sinew-context --tests
# Not for tests of numbers, of other programs, of what looks from outside, and of managers, which promise turns
# and so are not forced.
tests_but sinew many many_connections exhaustion allocation idling debugger profiling overflow foreign_loops \
    manager tasks dumping stalling deadlocks leaking tracing
here_with forced --cfg sinew_force_yield --cfg sinew_force_migration
cargo test -p sinew --no-fail-fast "${tests[@]}"
here_with faults --cfg sinew_faults
cargo test -p sinew --test sockets --test streams --test unix_sockets --test short_reads --test closing
unset RUSTC_WORKSPACE_WRAPPER
# Nothing can be unwound there: a suspended fiber that is dropped ends the process with a message,
# and the runtime tells its fibers by a mark.
export RUSTFLAGS="-C panic=abort"
out=$(cargo run -q -p sinew-context --example drop_suspended --target-dir target/abort 2>&1 || true)
grep -q 'cannot be unwound under panic = "abort"' <<<"$out" || {
    echo "under panic = \"abort\" the example said instead: $out" >&2
    exit 1
}
cargo run -q -p sinew --example without_unwinding --target-dir target/abort
echo "panic = \"abort\": 2 passed"
