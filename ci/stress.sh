#!/usr/bin/env bash
# Locks, signals and channels under stress for a minute, optimised, with assertions. For longer, or
# to repeat what failed: SINEW_STRESS_SECONDS=3600 SINEW_STRESS_SEED=… ci/stress.sh
source "$(dirname "$0")/lib.sh"
export SINEW_STRESS_SECONDS=${SINEW_STRESS_SECONDS:-60}
CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
    cargo test -p sinew --test stress --release --target-dir target/stress -- sync:: --nocapture
