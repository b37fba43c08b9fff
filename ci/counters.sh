#!/usr/bin/env bash
# What is counted for users costs at most 2 % of the instructions of a yield: with the counts against
# without, by callgrind, as the difference of two lengths of a run.
source "$(dirname "$0")/lib.sh"
need valgrind

# Instructions of two million yields, of a build with these flags in this folder.
measure() {
    RUSTFLAGS=$1 cargo build -q --release -p sinew --example yields --target-dir "$2"
    local long short
    long=$(instructions "$2" 1500000)
    short=$(instructions "$2" 500000)
    echo $((long - short))
}

instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$1/release/examples/yields" "$2" 2>&1 |
        sed -n 's/.*Collected : //p'
}

with=$(measure "" target/counted)
without=$(measure "--cfg sinew_uncounted" target/uncounted)
echo "instructions for two million yields: $with with counts, $without without"
[ $((100 * with)) -le $((102 * without)) ] || {
    echo "the counts cost more than 2 %" >&2
    exit 1
}
