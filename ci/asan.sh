#!/usr/bin/env bash
# The tests under AddressSanitizer, which is told of every switch. Works with the stable toolchain.
# Left out: the overflow tests, because the sanitizer has handlers of its own; the stack walker,
# which knows too few registers for frames that the sanitizer has realigned; what counts
# allocations or statics, or sets limits on memory or fills it, since the sanitizer takes much of
# its own; what measures processor time; what other programs make of this one, whose statics and
# frames the sanitizer has changed; browsers and other clients; and what others' tests ask of safe functions.
#
# Each fiber has a second stack there, for locals that are looked for after their return: 64 KiB of each size.
source "$(dirname "$0")/lib.sh"
functions_only
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=address --cfg sinew_asan"
export ASAN_OPTIONS="detect_stack_use_after_return=1:detect_leaks=0:abort_on_error=1:allow_user_segv_handler=1:max_uar_stack_size_log=16"
# The crates with unsafe code; others by name: `ci/asan.sh sinew-http`.
[ $# -gt 0 ] || set -- sinew-context sinew
for crate in "$@"; do
    tests_but "$crate" overflow backtraces exhaustion million no_globals many many_connections allocation \
        idling debugger profiling browser clients as_in_go as_in_std
    features=()
    [ "$crate" != sinew-http ] || features=(--all-features)
    cargo test -p "$crate" --no-fail-fast "${features[@]}" --target "$HOST" --target-dir target/asan "${tests[@]}" 2>&1 | tee "$log"
    if grep -q "ASan is ignoring" "$log"; then
        echo "AddressSanitizer was not told of a switch" >&2
        exit 1
    fi
done
