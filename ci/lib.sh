# Shared by the scripts in this folder: source it, do not run it.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
export HOST
HOST=$(rustc -vV | sed -n 's/^host: //p')

# Makes the compiler write less debug information, which saves time. Backtraces need only functions
# and lines. Do not call it for tests with a debugger, which needs types as well.
functions_only() {
    export CARGO_PROFILE_DEV_DEBUG=limited
}

# Makes cargo compile the crates of this workspace with extra flags. Other crates are compiled
# without them, so that all sets of flags share one build of those crates. $1: the name of the set
# of flags; further arguments: the flags.
here_with() {
    local wrapper=$PWD/target/with/$1
    shift
    mkdir -p "$(dirname "$wrapper")"
    printf '#!/bin/sh\nexec "$@" %s\n' "$*" >"$wrapper"
    chmod +x "$wrapper"
    export RUSTC_WORKSPACE_WRAPPER=$wrapper
}

# Installs the given Debian packages if they are missing. If it cannot install them, prints their
# names and fails.
need() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
            missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
        echo "missing packages: ${missing[*]}; install them and run this again" >&2
        return 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Sets `tests` to the cargo arguments for the unit tests of a crate and all of its test files,
# except the given ones. $1: the crate; further arguments: the test files to leave out.
tests_but() {
    local crate=$1 file name
    shift
    tests=(--lib)
    for file in crates/"$crate"/tests/*; do
        # A folder with a main file is a test. Other folders hold code that tests share.
        [ -f "$file" ] || [ -f "$file/main.rs" ] || continue
        name=$(basename "$file" .rs)
        [[ " $* " == *" $name "* ]] || tests+=(--test "$name")
    done
}

# Tests of sinew and sinew-context that cannot run under AddressSanitizer:
# - overflow: the sanitizer has signal handlers of its own.
# - backtraces: the stack walker knows too few registers for frames that the sanitizer realigns.
# - allocation and no_globals: they count allocations and statics, and the sanitizer adds some.
# - exhaustion, million, many and many_connections: they limit or fill memory, and the sanitizer
#   takes much memory itself.
# - idling: it measures processor time.
# - debugger and profiling: other programs look at statics and frames, which the sanitizer changes.
# - browser and clients: they need other programs.
# - as_in_go and as_in_std: they call safe functions only.
# shellcheck disable=SC2034 # callers use it
not_under_asan=(overflow backtraces exhaustion million no_globals many many_connections allocation
    idling debugger profiling browser clients as_in_go as_in_std)

# Sets `tests` to the cargo arguments for those of the given test files that a crate has. $1: the
# crate; further arguments: the test files.
tests_among() {
    local crate=$1 name
    shift
    tests=()
    for name in "$@"; do
        if [ -e "crates/$crate/tests/$name.rs" ] || [ -e "crates/$crate/tests/$name/main.rs" ]; then
            tests+=(--test "$name")
        fi
    done
}

# Sets RUSTC to Debian's compiler, and `cargo` to the machine's own cargo, which drives it. Debian's
# compiler comes with the sources of the standard library, so it can build for platforms that the
# machine's own compiler does not know. The compiler is unpacked, not installed.
use_debians_compiler() {
    local tools
    tools=${SINEW_CROSS_TOOLS:-$PWD/target/cross/tools}
    if [ ! -x "$tools/usr/bin/rustc" ]; then
        dpkg --add-architecture arm64
        apt-get update -qq
        mkdir -p "$tools"
        (
            cd "$tools"
            # apt drops privileges to a user that cannot write here; as root it need not.
            apt-get -o APT::Sandbox::User=root download -qq rustc-web rust-web-src libllvm22 \
                libstd-rust-web-dev libstd-rust-web-1.96 libstd-rust-web-dev:arm64 libstd-rust-web-1.96:arm64
            for package in *.deb; do dpkg -x "$package" .; done
            rm -f ./*.deb
        )
    fi
    export LD_LIBRARY_PATH=$tools/usr/lib/x86_64-linux-gnu:$tools/usr/lib/llvm-22/lib
    export RUSTC=$tools/usr/bin/rustc RUSTDOC=$tools/usr/bin/rustdoc RUSTC_BOOTSTRAP=1
    # shellcheck disable=SC2034 # callers use it
    cargo=$(LD_LIBRARY_PATH='' RUSTC='' rustup which cargo)
}
