#!/usr/bin/env bash
# Runs boto3 through every operation of the in-process SQS server. Needs cargo and python3 with venv.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ ! -x .venv/bin/python ]; then
    python3 -m venv .venv
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements.txt

cargo build --quiet --package sink-testkit --example sqs_server
exec .venv/bin/python scripts/boto3_operations.py "${CARGO_TARGET_DIR:-target}/debug/examples/sqs_server"
