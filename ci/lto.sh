#!/usr/bin/env bash
# Runs the runtime's tests in a release build with fat LTO. There the compiler sees the whole
# program, and is most likely to keep the address of a thread-local across a switch, which would be
# an error.
source "$(dirname "$0")/lib.sh"
CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 \
    cargo test -p sinew --tests --release --target-dir target/lto
