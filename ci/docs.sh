#!/usr/bin/env bash
# Checks that the documentation builds without warnings, that every path and link in a page exists,
# that modules keep to their order, and that comments avoid phrases that are hard to read.
source "$(dirname "$0")/lib.sh"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features
cargo test -p sinew-testkit --test pages
ci/modules.sh
ci/prose.sh
