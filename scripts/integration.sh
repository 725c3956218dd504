#!/usr/bin/env bash
# Runs what needs Python, Node, nats-server or Docker: real clients against the in-process
# server, the conformance suites and the dispatcher against SQS emulators that others wrote, and
# the suites that need real brokers. Installs what it needs into .venv and .integration, and
# nats-server from Debian where it is missing; starts what it tests, and stops it.
#
# The emulator and Kafka of docker-compose.integration.yml are tested as well where a
# Docker engine answers.
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
compose=(docker compose --file docker-compose.integration.yml)
composed=
stop() {
    [ -z "${composed:-}" ] || "${compose[@]}" down --volumes >/dev/null 2>&1 || true
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
scripts/boto3.sh --workspace

echo "== dispatcher against emulators, $(grep -c . "$hooks") hooks of $hooks"
cargo build --quiet --package dispatcher
dispatcher=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/debug/dispatcher
.venv/bin/pip install --quiet --disable-pip-version-check --requirement scripts/integration/requirements.txt
npm install --silent --no-audit --no-fund --prefix "$work" fauxqs@1.9.2

# Sets UPDATE_LEDGER=1 where none of the ledgers is kept yet: then they are written, and only
# cases that fail make the run fail. It says so, as nothing was compared.
unless_kept() { # LEDGER... -- COMMAND...
    local missing=() kept=
    while [ "$1" != -- ]; do
        if [ -f "$1" ]; then kept=yes; else missing+=("$1"); fi
        shift
    done
    shift
    if [ -n "$kept" ]; then
        "$@"
        return
    fi
    echo "nothing to compare with: not kept yet, and written by this run: ${missing[*]}"
    UPDATE_LEDGER=1 "$@"
}

# The live suite of a plugin.
conformance() { # PACKAGE
    REQUIRE_LIVE=1 cargo test --quiet --package "$1" --test conformance_live
}

# The test programs of a package by name, as `cargo test --workspace` builds them: asked for by
# package they would be built a second time, with other features of what they share.
built() { # FOLDER NAME...
    cargo test --quiet --workspace --no-run --message-format json | python3 -c '
import json, os, sys
folder, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
for line in sys.stdin:
    artifact = json.loads(line)
    if artifact.get("executable") and artifact["profile"]["test"] \
            and artifact["target"]["name"] in names \
            and os.path.dirname(artifact["manifest_path"]) == folder:
        print(artifact["executable"])
' "$@"
}

# Not more at once than an emulator answers within a fraction of the suite's hold.
# Built with the features of the whole workspace, as its tests are, so that nothing is
# built twice; the suites of other brokers are not asked for here.
sqs_conformance() { # EMULATOR PORT THREADS
    env -u REQUIRE_LIVE -u KAFKA_BROKERS SQS_EMULATOR="$1" SQS_EMULATOR_URL="http://127.0.0.1:$2" \
        SINK_SQS_LIVE_REQUIRE_LIVE=1 SINK_SQS_SOURCE_LIVE_REQUIRE_LIVE=1 \
        cargo test --quiet --workspace --test conformance_live --test conformance_source_live -- --test-threads "$3"
}

run_emulator() { # NAME PORT THREADS
    wait_for_port "$2"
    sqs_conformance "$1" "$2" "$3"
    .venv/bin/python scripts/integration/emulator.py "$1" "http://127.0.0.1:$2" "$dispatcher" \
        scripts/integration/dispatcher.toml "$hooks"
}

port=$(free_port)
.venv/bin/moto_server -H 127.0.0.1 -p "$port" >"$work/moto.log" 2>&1 &
pids+=($!)
run_emulator moto "$port" 16

port=$(free_port)
FAUXQS_PORT=$port node "$work/node_modules/fauxqs/dist/cli.js" >"$work/fauxqs.log" 2>&1 &
pids+=($!)
run_emulator fauxqs "$port" 24

echo "== suites that need a NATS server"
PATH=$PATH:/usr/sbin
if ! command -v nats-server >/dev/null; then
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    install=("${as_root[@]}" apt-get install --yes --quiet --no-install-recommends nats-server)
    # Where the lists of packages are old or missing, they are fetched first.
    "${install[@]}" || { "${as_root[@]}" apt-get update --quiet && "${install[@]}"; }
fi
mapfile -t programs < <(built examples/sink-nats it conformance conformance_source)
[ "${#programs[@]}" -eq 3 ] || { echo "expected three test programs of sink-nats: ${programs[*]}" >&2; exit 1; }
for program in "${programs[@]}"; do
    (cd examples/sink-nats && REQUIRE_LIVE=1 "$program" --quiet)
done
REQUIRE_LIVE=1 cargo test --quiet --workspace --features dispatcher/kafka --test brokers

if docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; then
    echo "== containers of docker-compose.integration.yml"
    composed=yes
    "${compose[@]}" up --detach --wait
    for port in 4566 9092 4222; do wait_for_port "$port"; done
    "${compose[@]}" exec -T kafka /opt/kafka/bin/kafka-topics.sh --bootstrap-server 127.0.0.1:9092 \
        --create --if-not-exists --topic hooks --partitions 3
    KAFKA_BROKERS=127.0.0.1:9092 KAFKA_TOPIC=hooks cargo test --quiet --package sink-kafka --test it named_brokers
    python3 scripts/nats_stream.py 4222
    NATS_URL=127.0.0.1:4222 cargo test --quiet --package sink-nats --test it a_named_server
    sqs=sink-sqs/tests kafka=examples/sink-kafka/tests
    unless_kept "$sqs/ledgers/floci.toml" "$sqs/source_ledgers/floci.toml" -- sqs_conformance floci 4566 8
    KAFKA_BROKERS=127.0.0.1:9092 unless_kept "$kafka/ledger-live.toml" -- conformance sink-kafka
else
    echo "== skipped: no Docker engine answers, so the containers are not tested"
    # Asked for by REQUIRE_LIVE=1, as on a machine that has an engine.
    [ "${REQUIRE_LIVE:-}" != 1 ] || exit 1
fi
