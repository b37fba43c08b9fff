#!/usr/bin/env bash
# The documentation builds without warnings, and every path and link that a page names exists.
source "$(dirname "$0")/lib.sh"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features
cargo test -p sinew-testkit --test pages
