#!/usr/bin/env bash
# The runtime's tests in a release build with fat LTO: where a compiler that knows everything would
# keep the address of a thread-local across a switch, if it could.
source "$(dirname "$0")/lib.sh"
CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 \
    cargo test -p sinew --tests --release --target-dir target/lto
