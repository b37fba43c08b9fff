# Shared by the scripts in this folder: source it, do not run it.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
export HOST
HOST=$(rustc -vV | sed -n 's/^host: //p')

# Has less debug information made, which takes long: backtraces need functions and lines. Not for tests with a
# debugger, which looks at types as well.
functions_only() {
    export CARGO_PROFILE_DEV_DEBUG=limited
}

# Has the crates of this workspace compiled with these flags, and others' as they always are, so that those are built
# once for all who use this. The name tells one set of flags from another.
here_with() {
    local wrapper=$PWD/target/with/$1
    shift
    mkdir -p "$(dirname "$wrapper")"
    printf '#!/bin/sh\nexec "$@" %s\n' "$*" >"$wrapper"
    chmod +x "$wrapper"
    export RUSTC_WORKSPACE_WRAPPER=$wrapper
}

# Installs Debian packages that are missing; says so and fails if that is not possible.
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

# Sets `tests` to the arguments that name all tests of a crate but those that are named here, and its library.
tests_but() {
    local crate=$1 file name
    shift
    tests=(--lib)
    for file in crates/"$crate"/tests/*; do
        # A folder is a test if it has a main file, and shared by others if not.
        [ -f "$file" ] || [ -f "$file/main.rs" ] || continue
        name=$(basename "$file" .rs)
        [[ " $* " == *" $name "* ]] || tests+=(--test "$name")
    done
}

# Sets RUSTC to Debian's compiler, which comes with the sources of the standard library and so builds
# for platforms that the machine's own does not know, and `cargo` to the machine's own, which drives
# it. It is unpacked, not installed.
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
    # shellcheck disable=SC2034 # for those who call this
    cargo=$(LD_LIBRARY_PATH='' RUSTC='' rustup which cargo)
}
