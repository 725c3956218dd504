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

python3 "$(dirname "$0")/nats_stream.py" "$port"
wait "$server"
