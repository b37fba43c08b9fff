#!/usr/bin/env bash
# Runs the test command of the README, the tests of optional features, and the tests of the
# benchmarks' arithmetic. With SINEW_BESIDE_ASAN=1 it leaves out the tests that ci/asan.sh runs.
source "$(dirname "$0")/lib.sh"
need gdb linux-perf || echo "LEFT OUT: gdb and perf cannot be installed here, so the tests that need them are skipped"
need curl wrk apache2-utils nghttp2-client ||
    echo "LEFT OUT: some clients cannot be installed here, so the tests that need them are skipped"
need chromium || echo "LEFT OUT: chromium cannot be installed here, so the test that needs it is skipped"
if [ "${SINEW_BESIDE_ASAN:-}" = 1 ]; then
    cargo test --workspace --exclude sinew --exclude sinew-context --no-fail-fast
    for crate in sinew-context sinew; do
        tests_among "$crate" "${not_under_asan[@]}"
        cargo test -p "$crate" --examples "${tests[@]}" --no-fail-fast
        cargo test -p "$crate" --doc
    done
else
    cargo test --workspace --no-fail-fast
fi
cargo test -p sinew --features tracing --test tracing
(cd bench && cargo test)
