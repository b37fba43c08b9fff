#!/usr/bin/env bash
# Runs the tests under AddressSanitizer, but for those that `not_under_asan` in lib.sh lists. sinew
# tells the sanitizer of every switch. The stable toolchain suffices.
#
# The sanitizer gives each fiber a second stack, where it finds uses of locals after their function
# has returned: 64 KiB for each size of frames.
source "$(dirname "$0")/lib.sh"
functions_only
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=address --cfg sinew_asan"
export ASAN_OPTIONS="detect_stack_use_after_return=1:detect_leaks=0:abort_on_error=1:allow_user_segv_handler=1:max_uar_stack_size_log=16"
# By default only the crates with unsafe code are tested. An argument names another crate, such as
# sinew-http.
[ $# -gt 0 ] || set -- sinew-context sinew
for crate in "$@"; do
    tests_but "$crate" "${not_under_asan[@]}"
    features=()
    [ "$crate" != sinew-http ] || features=(--all-features)
    cargo test -p "$crate" --no-fail-fast "${features[@]}" --target "$HOST" --target-dir target/asan "${tests[@]}" 2>&1 | tee "$log"
    if grep -q "ASan is ignoring" "$log"; then
        echo "AddressSanitizer saw a switch that sinew did not report" >&2
        exit 1
    fi
done
