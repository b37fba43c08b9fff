#!/usr/bin/env bash
# Loads a server with wrk, on 10,000 connections that stay open, for a minute. Checks that no
# request fails, and that the server has at most 1.05 times as much memory at the end as after 10 s.
# 25,000 connections would need more descriptors than the kernel allows by default. $1: seconds; $2:
# connections.
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
    echo "wrk counted failed requests" >&2
    exit 1
fi
if [ $((late * 100)) -gt $((early * 105)) ]; then
    echo "the memory of the server grew by more than 5 %" >&2
    exit 1
fi
