#!/usr/bin/env bash
# The modules of each crate use each other in one direction: the order of ARCHITECTURE.md. `--draw` writes the graph to
# docs/modules.md.
source "$(dirname "$0")/lib.sh"
if [ "${1:-}" = --draw ]; then
    export SINEW_DRAW=1
fi
cargo test -p sinew-testkit --test modules
