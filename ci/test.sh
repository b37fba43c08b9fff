#!/usr/bin/env bash
# The README's test command.
source "$(dirname "$0")/lib.sh"
cargo test --workspace
