#!/usr/bin/env bash
# Installs the clients of other languages where `benchmark run` looks for them: in the
# directory that BENCHMARK_PEERS names, else in .integration/peers of the checkout, which
# git ignores. Needs Python 3 with venv, and Node with npm; what is missing is left out.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
directory=${BENCHMARK_PEERS:-$here/../../../.integration/peers}
mkdir -p "$directory"
cd "$directory"

if command -v npm >/dev/null; then
    cp "$here/package.json" .
    npm install --no-audit --no-fund
else
    echo "npm is missing: no Node clients" >&2
fi
if command -v python3 >/dev/null; then
    python3 -m venv venv
    venv/bin/pip install --quiet --requirement "$here/requirements.txt"
else
    echo "python3 is missing: no boto3" >&2
fi
