#!/usr/bin/env bash
# Runs the tests that use threads under ThreadSanitizer. sinew tells the sanitizer of every switch.
# The standard library is not instrumented, so the sanitizer reports some races that do not exist:
# `ci/tsan.supp` lists them.
source "$(dirname "$0")/lib.sh"
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg sinew_tsan"
export TSAN_OPTIONS="halt_on_error=1:suppressions=$PWD/ci/tsan.supp"
# Tests that are left out:
# - Tests that measure how long the disk takes, or how much memory is in use.
# - Tests of the system's signals: the sanitizer holds a signal back while a thread is in a system
#   call that the sanitizer does not know.
# - A test that uses up all descriptors: without a descriptor the sanitizer cannot look up names,
#   and so cannot apply the suppressions.
run() {
    cargo test --no-fail-fast --target "$HOST" --target-dir target/tsan "$@" -- --test-threads=1 \
        --skip other_fibers_run_while_the_disk_works --skip the_stacks_of_a_manager_go_with_it \
        --skip a_report_hook_that_waits_disturbs_no_wait
}
run -p sinew-context --lib --test threads --test pool --test nesting --test ending \
    --test injecting --test generators --test scopes --test transcripts --test raw_context
run -p sinew --lib --test traps --test spawning --test parking --test sleeping --test predicates --test scopes \
    --test cancelling --test panics --test locals --test slots --test pinning --test migrating \
    --test shutdown --test stress --test locks --test keys --test signals --test channels \
    --test selecting --test turns --test broadcasts --test tokens --test futures --test sequences \
    --test batons --test readers_and_writers --test tasks --test manager --test outliving --test block_on --test groups \
    --test conditions --test placement
run -p sinew --test resting --test deferred_starts --test sockets --test closing --test streams --test datagrams --test unix_sockets \
    --test short_reads --test files --test processes --test io_abuse \
    --test inspecting --test stalling --test dumping --test tracing --test deadlocks
# The other tests of sinew-http have clients on scoped threads or with rustls. The end of a scoped
# thread and the locks of rustls are code of the standard library, which is not instrumented.
run -p sinew-http --test lifecycle --test websockets --test kept_bodies --test deadlines
