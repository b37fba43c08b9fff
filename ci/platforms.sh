#!/usr/bin/env bash
# Checks sinew for systems with kqueue, which cannot run here. `cargo check` looks at types and
# borrows, and generates no code.
source "$(dirname "$0")/lib.sh"
use_debians_compiler
triples=${*:-x86_64-apple-darwin aarch64-apple-darwin x86_64-unknown-freebsd}
for triple in $triples; do
    echo "== $triple"
    RUSTFLAGS=-Dwarnings "$cargo" check -p sinew --target "$triple" --target-dir target/cross/check \
        -Zbuild-std=std,panic_unwind
done
