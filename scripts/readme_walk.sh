#!/usr/bin/env bash
# Plays the README's section "Host, queue, worker": its first block of sh is the server, its
# second one the host and the worker, whose last lines have to be those that the README shows.
set -euo pipefail
cd "$(dirname "$0")/.."

block() { # NUMBER of the block of sh
    awk -v wanted="$1" '
        /^```sh$/ { number++; inside = 1; next }
        /^```$/ { inside = 0 }
        inside && number == wanted' README.md
}

cargo build --quiet --package dispatcher
cargo build --quiet --package worker
log=$(mktemp)
setsid bash -c "$(block 1)" >"$log" 2>&1 &
server=$!
trap 'kill -- -"$server" 2>/dev/null || true; rm -f "$log" dispatcher.toml worker.toml' EXIT
for _ in $(seq 300); do
    if (exec 3<>/dev/tcp/127.0.0.1/9324) 2>/dev/null; then break; fi
    kill -0 "$server" 2>/dev/null || { cat "$log"; exit 1; }
    sleep 0.1
done

seen=$(bash -euo pipefail -c "$(block 2)" 2>&1)
printf '%s\n' "$seen"
for expected in 'github sent: {"ref":"main"}' '"redelivery_count":1,"outcome":"ack","settled":true' \
    '1 received: 1 acked, 0 retried, 0 dropped'; do
    grep -qF "$expected" <<<"$seen" || { echo "the README shows: $expected" >&2; exit 1; }
done
