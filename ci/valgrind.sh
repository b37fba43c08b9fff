#!/usr/bin/env bash
# Runs tests under valgrind. Checks that it finds no error, and that sinew has told it of every
# stack.
source "$(dirname "$0")/lib.sh"
need valgrind
# Valgrind runs one thread at a time. Without fair turns, a fiber that polls would keep another
# thread from running for a minute.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --fair-sched=yes --error-exitcode=1 --trace-children=no --soname-synonyms=somalloc=none"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER
tests=()
for name in ending injecting generators scopes transcripts raw_context nesting threads host; do
    tests+=(--test "$name")
done
cargo test -p sinew-context --target-dir target/valgrind "${tests[@]}" -- --test-threads=1 2>&1 | tee "$log"
# Valgrind runs one thread at a time, and slowly. Tests that measure time or keep a thread busy are
# left out.
cargo test -p sinew --target-dir target/valgrind --test spawning --test locals --test slots \
    --test scopes --test cancelling --test shutdown -- --test-threads=1 \
    --skip destructors_run_once_in_every_state --skip runtimes_come_and_go \
    --skip a_submission_that_races_the_shutdown_is_not_lost \
    --skip wakes_that_race_a_cancellation_end_the_wait_once \
    --skip a_cancelled_fiber_knows 2>&1 | tee -a "$log"
# Valgrind does not know which memory the kernel writes for an io_uring, so other pollers are
# tested.
for backend in epoll poll; do
    SINEW_IO=$backend cargo test -p sinew --target-dir target/valgrind --test sockets --test closing \
        --test datagrams --test unix_sockets --test deferred_starts --test stream_ends -- \
        --test-threads=1 2>&1 | tee -a "$log"
done
if grep -qi "switching stacks" "$log"; then
    echo "valgrind saw a stack that sinew did not report" >&2
    exit 1
fi
