#!/usr/bin/env bash
# Runs what needs Python or Node: real clients against the in-process server, and the
# dispatcher against SQS emulators that others wrote. Installs what it needs into .venv
# and .integration, starts what it tests, and stops it.
#
# DISPATCH_HOOKS names the file of hooks to send. The default is a larger set of real ones
# where it lies beside the checkout, else the demo's.
set -euo pipefail
cd "$(dirname "$0")/.."

beside=../shared/input/github-hooks.ndjson
[ -f "$beside" ] || beside=examples/dispatcher/demo/hooks.ndjson
hooks=${DISPATCH_HOOKS:-$beside}
work=.integration
mkdir -p "$work"
pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
}
trap stop EXIT

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Waits until something listens; the emulators have no other sign of being ready.
wait_for_port() {
    python3 - "$1" <<'PY'
import socket, sys, time
for _ in range(600):
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1).close()
        sys.exit(0)
    except OSError:
        time.sleep(0.1)
sys.exit(f"nothing listens on port {sys.argv[1]} after a minute")
PY
}

echo "== boto3 against the in-process server"
scripts/boto3.sh

echo "== dispatcher against emulators, $(grep -c . "$hooks") hooks of $hooks"
cargo build --release --quiet --package dispatcher
dispatcher=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/release/dispatcher
.venv/bin/pip install --quiet --disable-pip-version-check --requirement scripts/integration/requirements.txt
npm install --silent --no-audit --no-fund --prefix "$work" fauxqs@1.9.2

run_emulator() { # NAME PORT
    wait_for_port "$2"
    .venv/bin/python scripts/integration/emulator.py "$1" "http://127.0.0.1:$2" "$dispatcher" \
        scripts/integration/dispatcher.toml "$hooks"
}

port=$(free_port)
.venv/bin/moto_server -H 127.0.0.1 -p "$port" >"$work/moto.log" 2>&1 &
pids+=($!)
run_emulator moto "$port"

port=$(free_port)
FAUXQS_PORT=$port node "$work/node_modules/fauxqs/dist/cli.js" >"$work/fauxqs.log" 2>&1 &
pids+=($!)
run_emulator fauxqs "$port"
