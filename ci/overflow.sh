#!/usr/bin/env bash
# Tests overflow reports in optimised builds, with and without fat LTO. `cargo test` covers debug
# builds.
source "$(dirname "$0")/lib.sh"
cargo test -p sinew-context --test overflow --release
CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 \
    cargo test -p sinew-context --test overflow --test ending --test nesting --release --target-dir target/lto
