"""Judges the in-process SQS server by boto3: every operation, its answers and its errors.

Usage: boto3_operations.py PATH_OF_SERVER. Ends with one line, "boto3: N passed, M failed".
"""

import base64
import hashlib
import json
import struct
import subprocess
import sys
import threading
import time
import traceback

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

CASES = []
REGION = "us-east-1"
ACCOUNT = "000000000000"


class Server:
    """The server's process. Its clock is moved through its standard input."""

    def __init__(self, path):
        self.process = subprocess.Popen(
            [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.endpoint = self.process.stdout.readline().strip()

    def advance(self, seconds):
        self.process.stdin.write(f"advance {seconds}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ok\n"

    def stop(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=10) == 0

    def client(self, key="test", secret="test", **options):
        return boto3.client(
            "sqs",
            endpoint_url=self.endpoint,
            region_name=options.pop("region", REGION),
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            aws_session_token=options.pop("token", None),
            config=Config(retries={"total_max_attempts": 1}, read_timeout=30),
        )


class Bench:
    """What a case works with: the server, a client, and names of its own."""

    def __init__(self, server, name):
        self.server = server
        self.sqs = server.client()
        self.name = name.replace("_", "-")[:60]
        self.made = 0

    def queue(self, fifo=False, **attributes):
        self.made += 1
        name = f"{self.name}-{self.made}"
        if fifo:
            name += ".fifo"
            attributes["FifoQueue"] = "true"
        return self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    def arn(self, url):
        answer = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return answer["Attributes"]["QueueArn"]

    def take(self, url, count=10, **options):
        answer = self.sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=count,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
            **options,
        )
        return answer.get("Messages", [])


def case(function):
    CASES.append(function)
    return function


def refused(code, status, call, *args, **kwargs):
    """Checks that a call is refused with this code, the shape's or the older one, and this status."""
    try:
        call(*args, **kwargs)
    except ClientError as error:
        got = (error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"])
        assert got == (code, status), f"expected {(code, status)}, got {got}"
        assert error.response["ResponseMetadata"]["RequestId"], "an error has a request id"
        return error
    raise AssertionError(f"expected {code}, but the call was good")


def bodies(messages):
    return [message["Body"] for message in messages]


def md5(text):
    return hashlib.md5(text.encode()).hexdigest()


def attributes_md5(attributes):
    """The digest of message attributes, written down once more from its description."""
    digest = hashlib.md5()

    def part(data):
        digest.update(struct.pack(">I", len(data)) + data)

    for name in sorted(attributes):
        value = attributes[name]
        part(name.encode())
        part(value["DataType"].encode())
        if value["DataType"].startswith("Binary"):
            digest.update(b"\x02")
            part(value["BinaryValue"])
        else:
            digest.update(b"\x01")
            part(value["StringValue"].encode())
    return digest.hexdigest()


# Queues.


@case
def a_queue_is_made_found_listed_and_deleted(bench):
    url = bench.queue()
    name = url.rsplit("/", 1)[1]
    assert url == f"{bench.server.endpoint}/{ACCOUNT}/{name}"
    assert bench.sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert bench.sqs.list_queues(QueueNamePrefix=name)["QueueUrls"] == [url]
    assert bench.sqs.delete_queue(QueueUrl=url)["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert "QueueUrls" not in bench.sqs.list_queues(QueueNamePrefix=name)
    refused("AWS.SimpleQueueService.NonExistentQueue", 400, bench.sqs.get_queue_url, QueueName=name)
    refused("AWS.SimpleQueueService.QueueDeletedRecently", 400, bench.sqs.create_queue, QueueName=name)


@case
def a_missing_queue_is_an_exception_of_its_own(bench):
    try:
        bench.sqs.get_queue_url(QueueName="nowhere")
    except bench.sqs.exceptions.QueueDoesNotExist:
        return
    raise AssertionError("boto3 should have made it a QueueDoesNotExist")


@case
def the_same_queue_is_made_twice_but_not_with_other_attributes(bench):
    url = bench.queue(VisibilityTimeout="11")
    name = url.rsplit("/", 1)[1]
    again = bench.sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "11"})
    assert again["QueueUrl"] == url
    refused(
        "QueueAlreadyExists",
        400,
        bench.sqs.create_queue,
        QueueName=name,
        Attributes={"VisibilityTimeout": "12"},
    )
    refused("InvalidParameterValue", 400, bench.sqs.create_queue, QueueName="not a name")
    refused("InvalidParameterValue", 400, bench.sqs.create_queue, QueueName="x.fifo")


@case
def queues_are_listed_in_pages(bench):
    urls = [bench.queue() for _ in range(3)]
    pages = bench.sqs.get_paginator("list_queues").paginate(
        QueueNamePrefix=bench.name, PaginationConfig={"PageSize": 2}
    )
    assert [page["QueueUrls"] for page in pages] == [urls[:2], urls[2:]]
    refused("InvalidParameterValue", 400, bench.sqs.list_queues, MaxResults=1001)


@case
def attributes_are_set_and_shown(bench):
    url = bench.queue(DelaySeconds="1")
    bench.sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "77"})
    shown = bench.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (shown["DelaySeconds"], shown["VisibilityTimeout"]) == ("1", "77")
    assert shown["QueueArn"] == f"arn:aws:sqs:{REGION}:{ACCOUNT}:" + url.rsplit("/", 1)[1]
    assert "FifoQueue" not in shown
    assert "Attributes" not in bench.sqs.get_queue_attributes(QueueUrl=url)
    change = bench.sqs.set_queue_attributes
    refused("InvalidAttributeName", 400, change, QueueUrl=url, Attributes={"Nonsense": "1"})
    refused("InvalidAttributeName", 400, change, QueueUrl=url, Attributes={"FifoQueue": "true"})
    refused("InvalidAttributeValue", 400, change, QueueUrl=url, Attributes={"DelaySeconds": "901"})
    get = bench.sqs.get_queue_attributes
    refused("InvalidAttributeName", 400, get, QueueUrl=url, AttributeNames=["Nonsense"])


@case
def a_purge_empties_a_queue_once_a_minute(bench):
    url = bench.queue()
    bench.sqs.send_message(QueueUrl=url, MessageBody="a")
    assert bench.sqs.purge_queue(QueueUrl=url)["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert bench.take(url) == []
    refused("AWS.SimpleQueueService.PurgeQueueInProgress", 403, bench.sqs.purge_queue, QueueUrl=url)
    bench.server.advance(60)
    bench.sqs.purge_queue(QueueUrl=url)


@case
def a_queue_url_of_another_host_is_an_invalid_address(bench):
    refused(
        "InvalidAddress",
        404,
        bench.sqs.send_message,
        QueueUrl=f"https://sqs.eu-west-1.amazonaws.com/{ACCOUNT}/q",
        MessageBody="a",
    )


@case
def a_bare_queue_name_will_do(bench):
    name = bench.queue().rsplit("/", 1)[1]
    bench.sqs.send_message(QueueUrl=name, MessageBody="a")
    assert bodies(bench.take(name)) == ["a"]


# Sending.


@case
def a_message_comes_back_as_it_was_sent(bench):
    url = bench.queue()
    attributes = {
        "zeta": {"DataType": "String.note", "StringValue": "héllo 🌊"},
        "Alpha": {"DataType": "Number.int", "StringValue": "-7"},
        "bin": {"DataType": "Binary.png", "BinaryValue": base64.b64decode("AP8Q")},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-67891233-abcdef012345678912345678"}}
    body = "sink ✓\t\r\n\u0085 🌊"
    sent = bench.sqs.send_message(
        QueueUrl=url,
        MessageBody=body,
        MessageAttributes=attributes,
        MessageSystemAttributes=trace,
    )
    assert sent["MD5OfMessageBody"] == md5(body)
    assert sent["MD5OfMessageAttributes"] == attributes_md5(attributes)
    assert sent["MD5OfMessageAttributes"] == "50b4c9e19e17802ddda14c266e3048a1"
    assert sent["MD5OfMessageSystemAttributes"] == attributes_md5(trace)
    (message,) = bench.take(url)
    assert message["Body"] == body
    assert message["MessageId"] == sent["MessageId"]
    assert message["MD5OfBody"] == md5(body)
    assert message["MessageAttributes"] == attributes
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"]["AWSTraceHeader"] == trace["AWSTraceHeader"]["StringValue"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


@case
def the_digest_is_of_the_attributes_that_are_returned(bench):
    url = bench.queue()
    attributes = {
        "color": {"DataType": "String", "StringValue": "blue"},
        "count": {"DataType": "Number", "StringValue": "3"},
    }
    bench.sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes=attributes)
    receive = bench.sqs.receive_message
    (some,) = receive(QueueUrl=url, MessageAttributeNames=["col.*"], VisibilityTimeout=0)["Messages"]
    assert some["MessageAttributes"] == {"color": attributes["color"]}
    assert some["MD5OfMessageAttributes"] == attributes_md5({"color": attributes["color"]})
    (none,) = receive(QueueUrl=url, VisibilityTimeout=0)["Messages"]
    assert set(none) == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}


@case
def what_cannot_be_sent_is_refused(bench):
    url = bench.queue()
    send = bench.sqs.send_message
    refused("MissingParameter", 400, send, QueueUrl=url, MessageBody="")
    refused("InvalidMessageContents", 400, send, QueueUrl=url, MessageBody="\u0007")
    refused("InvalidParameterValue", 400, send, QueueUrl=url, MessageBody="a" * 1_048_577)
    refused("InvalidParameterValue", 400, send, QueueUrl=url, MessageBody="a", DelaySeconds=901)
    refused("InvalidParameterValue", 400, send, QueueUrl=url, MessageBody="a", MessageDeduplicationId="d")
    refused("InvalidParameterValue", 400, send, QueueUrl=url, MessageBody="a", MessageGroupId="a b")
    for name, value in [
        ("AWS.x", {"DataType": "String", "StringValue": "v"}),
        ("n", {"DataType": "Text", "StringValue": "v"}),
        ("n", {"DataType": "String", "StringValue": ""}),
        ("n", {"DataType": "String", "StringValue": "\u0007"}),
    ]:
        refused("InvalidParameterValue", 400, send, QueueUrl=url, MessageBody="a", MessageAttributes={name: value})
    refused(
        "AWS.SimpleQueueService.UnsupportedOperation",
        400,
        send,
        QueueUrl=url,
        MessageBody="a",
        MessageAttributes={"n": {"DataType": "String", "StringListValues": ["v"]}},
    )
    assert bench.take(url) == []
    send(QueueUrl=url, MessageBody="a" * 1_048_576)


@case
def a_batch_answers_each_entry_by_its_id(bench):
    url = bench.queue(MaximumMessageSize="1024")
    answer = bench.sqs.send_message_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "good", "MessageBody": "a"},
            {"Id": "large", "MessageBody": "a" * 1025},
            {"Id": "odd", "MessageBody": "\uffff"},
        ],
    )
    assert [entry["Id"] for entry in answer["Successful"]] == ["good"]
    assert answer["Successful"][0]["MD5OfMessageBody"] == md5("a")
    failed = {entry["Id"]: (entry["Code"], entry["SenderFault"]) for entry in answer["Failed"]}
    assert failed == {
        "large": ("InvalidParameterValue", True),
        "odd": ("InvalidMessageContents", True),
    }
    good = bench.sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "x", "MessageBody": "b"}])
    assert "Failed" not in good


@case
def a_batch_fails_as_a_whole(bench):
    url = bench.queue()
    prefix = "AWS.SimpleQueueService."

    def send(code, entries):
        refused(prefix + code, 400, bench.sqs.send_message_batch, QueueUrl=url, Entries=entries)

    def entry(identity, body="a"):
        return {"Id": identity, "MessageBody": body}

    send("EmptyBatchRequest", [])
    send("TooManyEntriesInBatchRequest", [entry(str(n)) for n in range(11)])
    send("BatchEntryIdsNotDistinct", [entry("a"), entry("a")])
    send("InvalidBatchEntryId", [entry("a/b")])
    send("BatchRequestTooLong", [entry("a", "x" * 524_288), entry("b", "x" * 524_289)])
    assert bench.take(url) == []


# Receiving.


@case
def a_message_is_hidden_and_comes_back(bench):
    url = bench.queue(VisibilityTimeout="10")
    bench.sqs.send_message(QueueUrl=url, MessageBody="a")
    (first,) = bench.take(url)
    assert bench.take(url) == []
    bench.server.advance(10)
    (second,) = bench.take(url)
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    bench.sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=second["ReceiptHandle"], VisibilityTimeout=0
    )
    (third,) = bench.take(url)
    answer = bench.sqs.delete_message(QueueUrl=url, ReceiptHandle=third["ReceiptHandle"])
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
    refused(
        "InvalidParameterValue",
        400,
        bench.sqs.change_message_visibility,
        QueueUrl=url,
        ReceiptHandle=third["ReceiptHandle"],
        VisibilityTimeout=10,
    )


@case
def visibility_is_at_most_12_hours_from_the_receive(bench):
    url = bench.queue()
    bench.sqs.send_message(QueueUrl=url, MessageBody="a")
    (message,) = bench.take(url)

    def change(seconds):
        return bench.sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )

    change(43_100)
    bench.server.advance(200)
    refused("InvalidParameterValue", 400, change, 43_100)
    refused("InvalidParameterValue", 400, change, 43_201)


@case
def a_handle_that_is_none_is_refused(bench):
    url = bench.queue()
    for call in [
        lambda: bench.sqs.delete_message(QueueUrl=url, ReceiptHandle="garbage"),
        lambda: bench.sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle="garbage", VisibilityTimeout=0
        ),
    ]:
        refused("ReceiptHandleIsInvalid", 404, call)


@case
def batches_of_handles_answer_each_entry(bench):
    url = bench.queue()
    bench.sqs.send_message(QueueUrl=url, MessageBody="a")
    handle = bench.take(url)[0]["ReceiptHandle"]
    changed = bench.sqs.change_message_visibility_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "good", "ReceiptHandle": handle, "VisibilityTimeout": 60},
            {"Id": "bad", "ReceiptHandle": "garbage", "VisibilityTimeout": 60},
            {"Id": "long", "ReceiptHandle": handle, "VisibilityTimeout": 43_201},
        ],
    )
    assert changed["Successful"] == [{"Id": "good"}]
    codes = {entry["Id"]: entry["Code"] for entry in changed["Failed"]}
    assert codes == {"bad": "ReceiptHandleIsInvalid", "long": "InvalidParameterValue"}
    deleted = bench.sqs.delete_message_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "good", "ReceiptHandle": handle},
            {"Id": "bad", "ReceiptHandle": "garbage"},
        ],
    )
    assert deleted["Successful"] == [{"Id": "good"}]
    assert deleted["Failed"][0]["Code"] == "ReceiptHandleIsInvalid"


@case
def a_receive_out_of_range_is_refused(bench):
    url = bench.queue()
    receive = bench.sqs.receive_message
    refused("InvalidParameterValue", 400, receive, QueueUrl=url, MaxNumberOfMessages=11)
    refused("InvalidParameterValue", 400, receive, QueueUrl=url, WaitTimeSeconds=21)
    refused("InvalidParameterValue", 400, receive, QueueUrl=url, VisibilityTimeout=43_201)


@case
def a_long_poll_wakes_when_a_message_comes(bench):
    url = bench.queue()
    answers = []
    client = bench.server.client()
    poll = threading.Thread(
        target=lambda: answers.append(client.receive_message(QueueUrl=url, WaitTimeSeconds=20))
    )
    started = time.monotonic()
    poll.start()
    bench.sqs.send_message(QueueUrl=url, MessageBody="a")
    poll.join()
    assert bodies(answers[0]["Messages"]) == ["a"]
    assert time.monotonic() - started < 15


@case
def a_long_poll_without_messages_ends_empty(bench):
    url = bench.queue()
    started = time.monotonic()
    assert "Messages" not in bench.sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1)
    assert time.monotonic() - started >= 0.9


@case
def a_delay_is_kept(bench):
    url = bench.queue()
    bench.sqs.send_message(QueueUrl=url, MessageBody="a", DelaySeconds=30)
    assert bench.take(url) == []
    bench.server.advance(30)
    assert bodies(bench.take(url)) == ["a"]


# FIFO queues.


@case
def a_fifo_queue_keeps_order_and_locks_groups(bench):
    url = bench.queue(fifo=True)
    numbers = []
    for group, body in [("x", "x1"), ("y", "y1"), ("x", "x2")]:
        sent = bench.sqs.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=body
        )
        numbers.append(sent["SequenceNumber"])
    assert numbers == sorted(numbers) and all(len(number) == 20 for number in numbers)
    (first,) = bench.take(url, 1)
    assert first["Body"] == "x1"
    assert first["Attributes"]["MessageGroupId"] == "x"
    assert first["Attributes"]["MessageDeduplicationId"] == "x1"
    assert bodies(bench.take(url)) == ["y1"]
    bench.sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert bodies(bench.take(url)) == ["x2"]


@case
def a_duplicate_is_answered_and_dropped_for_five_minutes(bench):
    url = bench.queue(fifo=True)

    def send(body):
        return bench.sqs.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId="d"
        )

    first, second = send("a"), send("b")
    assert first["MessageId"] == second["MessageId"]
    (message,) = bench.take(url)
    bench.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    bench.server.advance(300)
    assert send("c")["MessageId"] != first["MessageId"]
    assert bodies(bench.take(url)) == ["c"]


@case
def content_can_make_the_deduplication_id(bench):
    url = bench.queue(fifo=True, ContentBasedDeduplication="true")
    for _ in range(2):
        bench.sqs.send_message(QueueUrl=url, MessageBody="a", MessageGroupId="g")
    (message,) = bench.take(url)
    assert message["Attributes"]["MessageDeduplicationId"] == hashlib.sha256(b"a").hexdigest()


@case
def a_fifo_queue_refuses_what_does_not_fit_it(bench):
    url = bench.queue(fifo=True)
    send = bench.sqs.send_message
    good = {"QueueUrl": url, "MessageBody": "a", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    refused("MissingParameter", 400, send, QueueUrl=url, MessageBody="a", MessageDeduplicationId="d")
    refused("InvalidParameterValue", 400, send, QueueUrl=url, MessageBody="a", MessageGroupId="g")
    refused("InvalidParameterValue", 400, send, **good, DelaySeconds=1)
    entries = [{"Id": "x", "MessageBody": "a", "MessageDeduplicationId": "d"}]
    refused("InvalidParameterValue", 400, bench.sqs.send_message_batch, QueueUrl=url, Entries=entries)
    send(**good)
    (message,) = bench.take(url)
    bench.server.advance(30)
    handle = message["ReceiptHandle"]
    refused("InvalidParameterValue", 400, bench.sqs.delete_message, QueueUrl=url, ReceiptHandle=handle)


@case
def a_receive_attempt_can_be_repeated(bench):
    url = bench.queue(fifo=True)
    bench.sqs.send_message(
        QueueUrl=url, MessageBody="a", MessageGroupId="g", MessageDeduplicationId="d"
    )
    first = bench.take(url, ReceiveRequestAttemptId="attempt-1")
    assert bench.take(url, ReceiveRequestAttemptId="attempt-1") == first
    assert bench.take(url) == []


# Dead-letter queues.


@case
def a_message_moves_to_the_dead_letter_queue_after_its_last_receive(bench):
    dead = bench.queue()
    policy = {"deadLetterTargetArn": bench.arn(dead), "maxReceiveCount": "2"}
    url = bench.queue(RedrivePolicy=json.dumps(policy))
    sent = bench.sqs.send_message(QueueUrl=url, MessageBody="a")
    for _ in range(2):
        assert len(bench.take(url)) == 1
        bench.server.advance(30)
    assert bench.take(url) == []
    (message,) = bench.take(dead)
    assert message["MessageId"] == sent["MessageId"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "3"
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == bench.arn(url)


@case
def a_bad_redrive_policy_is_refused(bench):
    url = bench.queue()
    change = bench.sqs.set_queue_attributes
    for policy in [
        "{}",
        json.dumps({"deadLetterTargetArn": bench.arn(url), "maxReceiveCount": 0}),
        json.dumps({"deadLetterTargetArn": bench.arn(url) + "-gone", "maxReceiveCount": 3}),
    ]:
        refused("InvalidParameterValue", 400, change, QueueUrl=url, Attributes={"RedrivePolicy": policy})


# Who calls.


@case
def a_caller_nobody_knows_is_refused(bench):
    refused("InvalidClientTokenId", 403, bench.server.client(key="nobody").list_queues)
    refused("InvalidClientTokenId", 403, bench.server.client(token="unasked").list_queues)
    refused("SignatureDoesNotMatch", 403, bench.server.client(secret="wrong").list_queues)
    refused("SignatureDoesNotMatch", 403, bench.server.client(region="eu-west-1").list_queues)


@case
def an_unsigned_call_is_refused(bench):
    from botocore import UNSIGNED

    client = boto3.client(
        "sqs",
        endpoint_url=bench.server.endpoint,
        region_name=REGION,
        config=Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1}),
    )
    refused("AccessDenied", 403, client.list_queues)


@case
def a_clock_that_is_off_is_a_bad_signature(bench):
    bench.server.advance(901)
    refused("SignatureDoesNotMatch", 403, bench.sqs.list_queues)


def main(path):
    failed = 0
    for function in CASES:
        # A server each: cases move the clock.
        server = Server(path)
        try:
            function(Bench(server, function.__name__))
        except Exception:
            failed += 1
            print(f"FAILED {function.__name__}")
            traceback.print_exc(file=sys.stdout)
        finally:
            server.stop()
    print(f"boto3: {len(CASES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
