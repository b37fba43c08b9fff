#!/usr/bin/env bash
# The README's test command, what features add, and the arithmetic of the benchmarks.
source "$(dirname "$0")/lib.sh"
need gdb linux-perf || echo "LEFT OUT: gdb and perf cannot be installed here, so the tests with them skip"
need curl wrk apache2-utils nghttp2-client ||
    echo "LEFT OUT: some clients cannot be installed here, so the tests with them skip"
need chromium || echo "LEFT OUT: chromium cannot be installed here, so the test with it skips"
cargo test --workspace --no-fail-fast
cargo test -p sinew --features tracing --test tracing
(cd bench && cargo test)
