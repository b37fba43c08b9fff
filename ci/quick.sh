#!/usr/bin/env bash
# Checks a change in two minutes: format, clippy for the crates that changed and for those that use
# them, the unit tests of those that changed, the order of modules and the phrases in comments. The
# argument is the commit to compare with, the last one on main by default.
source "$(dirname "$0")/lib.sh"
base=${1:-$(git merge-base HEAD main)}
changed=$({
    git diff --name-only "$base" -- crates bench
    git ls-files --others --exclude-standard -- crates bench
} | cut -d/ -f1,2 | sort -u)
cargo fmt --all --check
if [ -z "$changed" ]; then
    echo "nothing in crates or bench has changed since $base"
    exit 0
fi
packages=()
for name in sinew-context sinew sinew-http sinew-cli sinew-testkit; do
    # A crate uses the crates before it in this list.
    if [ ${#packages[@]} -gt 0 ] || grep -qx "crates/$name" <<<"$changed"; then
        packages+=(-p "$name")
    fi
done
if [ ${#packages[@]} -gt 0 ]; then
    cargo clippy "${packages[@]}" --all-targets --all-features -- -D warnings
    for name in sinew-context sinew sinew-http; do
        if grep -qx "crates/$name" <<<"$changed"; then
            cargo test -p "$name" --lib
        fi
    done
fi
if grep -q ^bench <<<"$changed"; then
    (cd bench && cargo fmt --check)
fi
ci/modules.sh
ci/prose.sh
