#!/usr/bin/env bash
# Fuzzes the parsers of sinew-http. The argument is the number of seconds, 60 by default. Inputs
# that reach new code go to the corpus, which is kept in one archive. Inputs that fail stay in
# fuzz/artifacts.
source "$(dirname "$0")/lib.sh"
seconds=${1:-60}
if ! cargo fuzz --version >/dev/null 2>&1; then
    cargo install --quiet cargo-fuzz
fi
need xz-utils
export RUSTC_BOOTSTRAP=1
archive=$PWD/crates/sinew-http/fuzz/corpus.tar.xz
corpus=$(mktemp -d)
least=$(mktemp -d)
trap 'rm -rf "$corpus" "$least"' EXIT
if [ -f "$archive" ]; then
    tar -xf "$archive" -C "$corpus"
fi
cd crates/sinew-http
cargo fuzz run requests --sanitizer none "$corpus" -- \
    -max_total_time="$seconds" -max_len=4096 -dict=fuzz/requests.dict -print_final_stats=1
# Keep only the inputs that reach code which no other input reaches.
cargo fuzz run requests --sanitizer none "$least" "$corpus" -- -merge=1
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cJf "$archive" -C "$least" .
