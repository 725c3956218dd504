#!/usr/bin/env bash
# Runs boto3 through every operation of the in-process SQS server. Needs cargo and python3 with venv.
#
#   scripts/boto3.sh               build the server alone
#   scripts/boto3.sh --workspace   build it as the tests of the workspace do, where they are built
set -euo pipefail
cd "$(dirname "$0")/.."

if [ ! -x .venv/bin/python ]; then
    python3 -m venv .venv
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements.txt

case "${1-}" in
    "") selection=(--package sink-testkit) ;;
    --workspace) selection=(--workspace) ;;
    *) echo "unknown argument: expected --workspace or none" >&2; exit 1 ;;
esac
cargo build --quiet "${selection[@]}" --example sqs_server
exec .venv/bin/python scripts/boto3_operations.py "${CARGO_TARGET_DIR:-target}/debug/examples/sqs_server"
