#!/usr/bin/env bash
# Checks that the counters for users cost at most 2 % of the instructions of a yield. callgrind
# counts the instructions of a build with counters and of a build without. The difference between a
# long run and a short run leaves out the start of the program.
source "$(dirname "$0")/lib.sh"
need valgrind

# Prints the instructions of two million yields. $1: the flags of the build; $2: its folder.
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
    echo "the counters cost more than 2 % of the instructions of a yield" >&2
    exit 1
}
