#!/usr/bin/env bash
# Stresses locks, signals and channels for a minute, in an optimised build with assertions. For a
# longer run, or to repeat a failure: SINEW_STRESS_SECONDS=3600 SINEW_STRESS_SEED=… ci/stress.sh
source "$(dirname "$0")/lib.sh"
export SINEW_STRESS_SECONDS=${SINEW_STRESS_SECONDS:-60}
CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
    cargo test -p sinew --test stress --release --target-dir target/stress -- sync:: --nocapture
