#!/usr/bin/env bash
# Runs a nats-server with JetStream on a port (4222 unless given) in the foreground, its store in
# a temporary directory, for trying a configuration on. The tests of sink-nats start their own.
# Needs nats-server (Debian: apt-get install nats-server) and, to create the stream HOOKS for
# hooks.>, Python 3.
set -euo pipefail
port=${1:-4222}
PATH=$PATH:/usr/sbin
store=$(mktemp -d)
nats-server --addr 127.0.0.1 --port "$port" --jetstream --store_dir "$store" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$store"' EXIT

python3 - "$port" <<'PY'
import json, socket, sys, time

request = json.dumps({"name": "HOOKS", "subjects": ["hooks.>"], "storage": "file"}).encode()
for _ in range(100):
    try:
        connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("nats-server does not start")
lines = connection.makefile("rb")
lines.readline()
connection.sendall(
    b'CONNECT {"verbose":false}\r\nSUB reply 1\r\n'
    + b"PUB $JS.API.STREAM.CREATE.HOOKS reply %d\r\n%s\r\n" % (len(request), request)
)
while not lines.readline().startswith(b"MSG reply"):
    pass
answer = json.loads(lines.readline())
if "error" in answer:
    sys.exit(f"the stream is not created: {answer['error']['description']}")
print(f"stream HOOKS takes hooks.> at 127.0.0.1:{sys.argv[1]}")
PY
wait "$server"
