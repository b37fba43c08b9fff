#!/usr/bin/env bash
# The tests that use threads under ThreadSanitizer, which is told of every switch.
# The standard library is not instrumented: `ci/tsan.supp` lists what it is wrong about.
source "$(dirname "$0")/lib.sh"
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg sinew_tsan"
export TSAN_OPTIONS="halt_on_error=1:suppressions=$PWD/ci/tsan.supp"
tests=(--lib)
for name in threads pool nesting ending injecting generators scopes transcripts raw_context; do
    tests+=(--test "$name")
done
cargo test -p sinew-context --target "$HOST" --target-dir target/tsan "${tests[@]}" -- --test-threads=1
