#!/usr/bin/env bash
# The tests that use threads under ThreadSanitizer, which is told of every switch.
# The standard library is not instrumented: `ci/tsan.supp` lists what it is wrong about.
source "$(dirname "$0")/lib.sh"
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg sinew_tsan"
export TSAN_OPTIONS="halt_on_error=1:suppressions=$PWD/ci/tsan.supp"
# Tests that measure how long the disk takes, and how much memory there is, are left out. So are signals of the
# system: the sanitizer holds them back while a thread is in a call of the kernel that it does not know. And one
# that uses up all descriptors, without which the sanitizer cannot look up what it is to leave out.
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
    --test conditions
run -p sinew --test resting --test deferred_starts --test sockets --test closing --test streams --test datagrams --test unix_sockets \
    --test short_reads --test files --test processes --test io_abuse \
    --test inspecting --test stalling --test dumping --test tracing --test deadlocks
# The other tests of sinew-http have clients on scoped threads, or of rustls: the ends of the former and the locks
# of the latter are the standard library's.
run -p sinew-http --test lifecycle --test websockets --test kept_bodies --test deadlines
