#!/usr/bin/env bash
# Runs tests on paths that this machine does not take by itself:
# - fallback: guards by mprotect, pages that are touched one by one, and high-water marks without
#   /proc.
# - forced: a yield before every wait, and migratable fibers that move whenever they can.
# - faults: system calls that are interrupted, would block, or are done in part.
# - panic = "abort".
source "$(dirname "$0")/lib.sh"
functions_only
here_with fallback --cfg sinew_force_fallback
cargo test -p sinew-context --tests
# These tests are left out: tests that measure or count, tests with other programs, tests of
# inspection, and tests of managers. Managers promise an order of turns, so yields are not forced
# there.
tests_but sinew many many_connections exhaustion allocation idling debugger profiling overflow foreign_loops \
    manager tasks dumping stalling deadlocks leaking tracing
here_with forced --cfg sinew_force_yield --cfg sinew_force_migration --cfg sinew_faults
cargo test -p sinew --no-fail-fast "${tests[@]}"
SINEW_FAULTS=1 cargo test -p sinew --test sockets --test streams --test unix_sockets --test short_reads --test closing
unset RUSTC_WORKSPACE_WRAPPER
# With panic = "abort", no fiber can be unwound. Dropping a suspended fiber ends the process with a
# message. A cancellation only sets a mark, which the fiber can look at.
export RUSTFLAGS="-C panic=abort"
out=$(cargo run -q -p sinew-context --example drop_suspended --target-dir target/abort 2>&1 || true)
grep -q 'cannot be unwound under panic = "abort"' <<<"$out" || {
    echo "under panic = \"abort\" the example said instead: $out" >&2
    exit 1
}
cargo run -q -p sinew --example without_unwinding --target-dir target/abort
echo "panic = \"abort\": 2 passed"
