#!/usr/bin/env bash
# The tests that use threads under ThreadSanitizer, which is told of every switch.
# The standard library is not instrumented: `ci/tsan.supp` lists what it is wrong about.
source "$(dirname "$0")/lib.sh"
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg sinew_tsan"
export TSAN_OPTIONS="halt_on_error=1:suppressions=$PWD/ci/tsan.supp"
run() { cargo test --target "$HOST" --target-dir target/tsan "$@" -- --test-threads=1; }
run -p sinew-context --lib --test threads --test pool --test nesting --test ending \
    --test injecting --test generators --test scopes --test transcripts --test raw_context
run -p sinew --lib --test traps --test spawning --test parking --test sleeping --test predicates --test scopes \
    --test cancelling --test panics --test locals --test slots --test pinning --test migrating \
    --test shutdown --test stress --test locks --test keys --test signals --test channels \
    --test selecting --test turns --test broadcasts --test tokens --test futures --test sequences
