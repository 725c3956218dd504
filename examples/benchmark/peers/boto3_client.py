"""boto3 with 8 requests in flight: prints what one run used, as one line of JSON.

Usage: boto3_client.py ENDPOINT MESSAGES_FILE MESSAGES_PER_REQUEST
"""

import json
import sys
import threading
import time

import boto3

endpoint, path, per_request = sys.argv[1], sys.argv[2], int(sys.argv[3])
IN_FLIGHT = 8

with open(path, encoding="utf-8") as file:
    messages = [json.loads(line) for line in file]

client = boto3.client(
    "sqs",
    region_name="us-east-1",
    endpoint_url=endpoint,
    aws_access_key_id="AKIDBENCHMARK0000001",
    aws_secret_access_key="benchmarkSecretNotReal/00000000000000001",
)
queue_url = f"{endpoint}/000000000000/hooks"

lock = threading.Lock()
taken = 0
answered = 0
marks = []
first, last = len(messages) // 10, len(messages) - len(messages) // 10


def take():
    global taken
    with lock:
        some = messages[taken : taken + per_request]
        taken += len(some)
        return some


def count(number):
    global answered
    with lock:
        answered += number
        if (not marks and answered >= first) or (len(marks) == 1 and answered >= last):
            marks.append((answered, time.process_time_ns(), time.perf_counter_ns()))


def attributes(message):
    return {
        name: {"DataType": "String", "StringValue": value}
        for name, value in message["attributes"].items()
    }


def work():
    while some := take():
        if per_request == 1:
            client.send_message(
                QueueUrl=queue_url,
                MessageBody=some[0]["body"],
                MessageAttributes=attributes(some[0]),
            )
        else:
            reply = client.send_message_batch(
                QueueUrl=queue_url,
                Entries=[
                    {
                        "Id": str(index),
                        "MessageBody": message["body"],
                        "MessageAttributes": attributes(message),
                    }
                    for index, message in enumerate(some)
                ],
            )
            assert len(reply["Successful"]) == len(some), reply
        count(len(some))


threads = [threading.Thread(target=work) for _ in range(IN_FLIGHT)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

(from_count, from_cpu, from_wall), (to_count, to_cpu, to_wall) = marks
print(
    json.dumps(
        {
            "messages": to_count - from_count,
            "cpu_ns": to_cpu - from_cpu,
            "wall_ns": to_wall - from_wall,
        }
    )
)
