"""Sends hooks with `dispatcher send` to an SQS emulator and reads every one back with boto3.

usage: emulator.py NAME ENDPOINT DISPATCHER CONFIG HOOKS

Each check counts once. The last line is `NAME: N passed, M failed`; the status is 1 when any failed.
"""

import base64
import hashlib
import json
import os
import subprocess
import sys
import tempfile

import boto3
from botocore.config import Config

NEVER_FORWARDED = {"authorization", "proxy-authorization", "cookie", "x-api-key", "host", "content-length",
                   "content-type", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade",
                   "expect"}

passed = 0
failures = []


def check(what, right):
    global passed
    if right:
        passed += 1
    else:
        failures.append(what)
        print(f"FAILED {what}", file=sys.stderr)


def forwarded(headers):
    """The headers as the message format carries them, worked out here once more."""
    expected = {}
    for name, value in headers:
        name = name.lower()
        if name in NEVER_FORWARDED or name.startswith("x-ankusa-"):
            continue
        expected[name] = f"{expected[name]}, {value}" if name in expected else value
    return expected


def receive_all(sqs, queue_url, count):
    messages = []
    empty = 0
    while len(messages) < count and empty < 5:
        answer = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=1,
                                     AttributeNames=["All"], MessageAttributeNames=["All"])
        received = answer.get("Messages", [])
        empty = 0 if received else empty + 1
        for message in received:
            messages.append(message)
            # Deleted at once: a FIFO group gives its next messages only then.
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    return messages


def check_message(name, message, hook, fifo):
    body = json.loads(message["Body"])
    sent = hook["body"].encode() if "body" in hook else base64.b64decode(hook["body_base64"])
    read = base64.b64decode(body["body_base64"], validate=True)
    check(f"{name}: the body is the hook's, byte for byte", read == sent)
    check(f"{name}: its size", body["size"] == len(sent))
    check(f"{name}: its digest", body["sha256"] == hashlib.sha256(sent).hexdigest())
    check(f"{name}: source, tenant and time", (body["source_id"], body["tenant_id"], body["received_at"])
          == (hook["source_id"], hook.get("tenant_id"), hook["received_at"]))
    check(f"{name}: content type", body["content_type"] == hook.get("content_type"))
    check(f"{name}: forwarded headers", body["headers"] == forwarded(hook.get("headers") or []))

    attributes = {key: value["StringValue"] for key, value in message.get("MessageAttributes", {}).items()}
    types = {value["DataType"] for value in message.get("MessageAttributes", {}).values()}
    key = hook.get("dedupe_key")
    tenant = hook.get("tenant_id")
    expected = {
        "ankusa_id": body["id"],
        "ankusa_source_id": hook["source_id"],
        "ankusa_message_version": "1",
        "ankusa_idempotency_key": f"{tenant or 'default'}:{hook['source_id']}:{key}" if key else body["id"],
        "content_type": "application/json",
    }
    if tenant:
        expected["ankusa_tenant_id"] = tenant
    if key:
        expected["ankusa_dedupe_key"] = key
    check(f"{name}: attributes", attributes == expected)
    check(f"{name}: attribute types", types == {"String"})

    system = message.get("Attributes", {})
    if fifo:
        check(f"{name}: group", system.get("MessageGroupId") == f"{tenant or ''}/{hook['source_id']}")
        check(f"{name}: deduplication id", system.get("MessageDeduplicationId") == body["id"])
    else:
        check(f"{name}: no group", "MessageGroupId" not in system)
        check(f"{name}: no deduplication id", "MessageDeduplicationId" not in system)
    secrets = [value for header, value in hook.get("headers") or [] if header.lower() == "authorization"]
    whole = json.dumps(message)
    check(f"{name}: no credential was sent",
          "authorization" not in whole.lower() and not any(secret in whole for secret in secrets))


def check_mode(sqs, endpoint, dispatcher, config, hooks, hooks_file, mode):
    """Delivers all hooks to two new queues, and reads both back."""
    standard = sqs.create_queue(QueueName=f"hooks-{mode}")["QueueUrl"]
    fifo = sqs.create_queue(QueueName=f"hooks-{mode}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]

    folder = tempfile.mkdtemp()
    dead = os.path.join(folder, "dead.ndjson")
    config_file = os.path.join(folder, "dispatcher.toml")
    with open(config_file, "w", encoding="utf-8") as file:
        file.write(config)
    run = subprocess.run(
        [dispatcher, "send", "--config", config_file, "--input", hooks_file, "--json", "--dead-letters", dead],
        env={**os.environ, "STANDARD_QUEUE_URL": standard, "FIFO_QUEUE_URL": fifo, "SQS_ENDPOINT": endpoint},
        capture_output=True, text=True, timeout=300)
    check(f"{mode}: dispatcher exits 0, not {run.returncode}", run.returncode == 0)
    if run.returncode != 0:
        print(run.stderr, file=sys.stderr)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    check(f"{mode}: one line a delivery", len(lines) == 2 * len(hooks))
    check(f"{mode}: every delivery is reported as delivered", all(line["outcome"] == "delivered" for line in lines))
    check(f"{mode}: no dead letters", os.path.getsize(dead) == 0)
    check(f"{mode}: no credential in the report", "Bearer" not in run.stdout + run.stderr)

    for queue_url, is_fifo in ((standard, False), (fifo, True)):
        kind = "fifo" if is_fifo else "standard"
        name = f"{mode} {kind}"
        messages = receive_all(sqs, queue_url, len(hooks))
        check(f"{name}: {len(hooks)} messages, not {len(messages)}", len(messages) == len(hooks))
        ids = {line["provider_id"] for line in lines if line["sink"] == kind}
        check(f"{name}: the reported message ids", ids == {message["MessageId"] for message in messages})
        # Bodies identify hooks: equal ones are told apart by nothing that matters here.
        waiting = {}
        for hook in hooks:
            waiting.setdefault((hook.get("tenant_id"), hook["body"]), []).append(hook)
        arrived = {}
        for number, message in enumerate(messages):
            body = json.loads(message["Body"])
            key = (body["tenant_id"], base64.b64decode(body["body_base64"]).decode())
            if not waiting.get(key):
                check(f"{name} {number}: is a hook that was sent, and was not there before", False)
                continue
            hook = waiting[key].pop(0)
            arrived.setdefault((body["tenant_id"], body["source_id"]), []).append(hook["body"])
            check_message(f"{name} {number}", message, hook, is_fifo)
        check(f"{name}: no hook is missing", not any(waiting.values()))
        if is_fifo:
            for (tenant, source), bodies in arrived.items():
                sent = [hook["body"] for hook in hooks
                        if (hook.get("tenant_id"), hook["source_id"]) == (tenant, source)]
                check(f"{name}: order of the group {tenant}/{source}", bodies == sent)


def main():
    emulator, endpoint, dispatcher, config_file, hooks_file = sys.argv[1:]
    with open(hooks_file, encoding="utf-8") as lines:
        hooks = [json.loads(line) for line in lines if line.strip()]
    sqs = boto3.client("sqs", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="test",
                       aws_secret_access_key="test", config=Config(retries={"total_max_attempts": 1}))
    with open(config_file, encoding="utf-8") as file:
        config = file.read()
    check_mode(sqs, endpoint, dispatcher, config, hooks, hooks_file, "batched")
    single = config.replace('kind = "sqs"', 'kind = "sqs"\nbatch = false')
    check_mode(sqs, endpoint, dispatcher, single, hooks, hooks_file, "single")
    print(f"{emulator}: {passed} passed, {len(failures)} failed")
    return 1 if failures or not hooks else 0


sys.exit(main())
