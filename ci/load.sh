#!/usr/bin/env bash
# 10,000 connections that are kept alive, under wrk for a minute: no errors, and at the end at most 1.05 times
# the memory of the tenth second. 25,000 would need more descriptors than the kernel's default allows.
source "$(dirname "$0")/lib.sh"
need wrk
seconds=${1:-60}
connections=${2:-10000}
ulimit -n "$(ulimit -Hn)"
cargo build --release -q -p sinew-http --example hello
server=(target/release/examples/hello 127.0.0.1:18999)
"${server[@]}" &
pid=$!
report=$(mktemp)
trap 'kill $pid 2>/dev/null || true; rm -f "$report"' EXIT
resident() { awk '/VmRSS/ {print $2}' "/proc/$pid/status"; }
until (exec 3<>/dev/tcp/127.0.0.1/18999) 2>/dev/null; do sleep 0.1; done
wrk -t2 -c"$connections" -d"$seconds"s --timeout 30s --latency http://127.0.0.1:18999/ >"$report" &
load=$!
sleep 10
early=$(resident)
sleep $((seconds - 11))
late=$(resident)
wait "$load"
cat "$report"
echo "resident after 10 s: $early KiB, after $((seconds - 1)) s: $late KiB"
if grep -qE "Socket errors|Non-2xx" "$report"; then
    echo "there were errors" >&2
    exit 1
fi
if [ $((late * 100)) -gt $((early * 105)) ]; then
    echo "the server grows" >&2
    exit 1
fi
