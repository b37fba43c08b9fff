#!/usr/bin/env bash
# Runs tests on aarch64 and riscv64, under qemu's user emulation.
#
# Debian's compiler has a standard library for arm64, and the sources to build one for riscv64.
# Three things differ under qemu:
# - qemu does not know in-place guards, so the tests use the fallback, `mprotect`.
# - qemu handles faults itself, so the overflow tests run natively only.
# - The process contains the emulator, too, and its memory has other addresses. So the tests that
#   look at the memory of the process, such as the tests of `inspect`, run natively only.
source "$(dirname "$0")/lib.sh"
# A backtrace takes more stack than the smallest fiber of a test has.
export RUST_BACKTRACE=0
archs=${*:-aarch64 riscv64}
need qemu-user
use_debians_compiler
tests=(--lib)
for name in ending injecting misuse transcripts generators scopes raw_context nesting threads fp_control stacks pool; do
    tests+=(--test "$name")
done
for arch in $archs; do
    triple=$arch-unknown-linux-gnu
    case $arch in
    aarch64)
        need gcc-aarch64-linux-gnu libc6-dev-arm64-cross
        extra=()
        ;;
    riscv64)
        need gcc-riscv64-linux-gnu libc6-dev-riscv64-cross
        triple=riscv64gc-unknown-linux-gnu
        extra=("-Zbuild-std=std,panic_unwind,test")
        ;;
    *)
        echo "no recipe for $arch; use aarch64 or riscv64" >&2
        exit 1
        ;;
    esac
    upper=$(tr 'a-z-' 'A-Z_' <<<"$triple")
    runner="qemu-$arch -L /usr/$arch-linux-gnu"
    export "CARGO_TARGET_${upper}_LINKER=$arch-linux-gnu-gcc"
    export "CARGO_TARGET_${upper}_RUNNER=$runner"
    export SINEW_TEST_RUNNER=$runner
    echo "== $triple"
    "$cargo" test -p sinew-context --target "$triple" --target-dir target/cross/out \
        ${extra[@]+"${extra[@]}"} "${tests[@]}" -- \
        --skip a_burst_is_given_back --skip a_segmented_stack_grows --skip guards_of_both_kinds
    "$cargo" test -p sinew --target "$triple" --target-dir target/cross/out \
        ${extra[@]+"${extra[@]}"} --lib --test spawning --test parking --test sleeping \
        --test predicates --test scopes --test cancelling --test panics --test locals --test slots \
        --test pinning --test migrating --test shutdown --test stress --test traps -- \
        --skip short_threads_leave_nothing_behind --skip inspect::
done
