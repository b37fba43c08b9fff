#!/usr/bin/env bash
# The documentation builds without warnings, every path and link that a page names exists, and the comments keep to
# plain words.
source "$(dirname "$0")/lib.sh"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features
cargo test -p sinew-testkit --test pages
ci/prose.sh
