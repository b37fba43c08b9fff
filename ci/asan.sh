#!/usr/bin/env bash
# The tests under AddressSanitizer, which is told of every switch. Works with the stable toolchain.
# Left out: the overflow tests, because the sanitizer has handlers of its own; the stack walker,
# which knows too few registers for frames that the sanitizer has realigned; what counts
# allocations or statics, or sets limits on memory or fills it, since the sanitizer takes much of
# its own; and what measures processor time.
source "$(dirname "$0")/lib.sh"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=address --cfg sinew_asan"
export ASAN_OPTIONS="detect_stack_use_after_return=1:detect_leaks=0:abort_on_error=1:allow_user_segv_handler=1"
for crate in sinew-context sinew; do
    tests=(--lib)
    for file in crates/"$crate"/tests/*; do
        # A folder is a test if it has a main file, and shared by others if not.
        [ -f "$file" ] || [ -f "$file/main.rs" ] || continue
        name=$(basename "$file" .rs)
        case $name in
        overflow | backtraces | exhaustion | million | no_globals | many | many_connections | allocation | idling) ;;
        *) tests+=(--test "$name") ;;
        esac
    done
    cargo test -p "$crate" --target "$HOST" --target-dir target/asan "${tests[@]}" 2>&1 | tee "$log"
    if grep -q "ASan is ignoring" "$log"; then
        echo "AddressSanitizer was not told of a switch" >&2
        exit 1
    fi
done
