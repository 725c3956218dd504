// Node clients with 8 requests in flight: sqs-producer in batches, the SDK for JavaScript a
// message a request. Prints what one run used, as one line of JSON.
//
// Usage: sqs_producer_client.mjs ENDPOINT MESSAGES_FILE MESSAGES_PER_REQUEST

import { readFileSync } from "node:fs";
import { SQSClient, SendMessageCommand } from "@aws-sdk/client-sqs";
import { Producer } from "sqs-producer";

const [endpoint, path, perRequestText] = process.argv.slice(2);
const perRequest = Number(perRequestText);
const IN_FLIGHT = 8;

const messages = readFileSync(path, "utf8")
  .trimEnd()
  .split("\n")
  .map((line) => JSON.parse(line));

const sqs = new SQSClient({
  region: "us-east-1",
  endpoint,
  credentials: {
    accessKeyId: "AKIDBENCHMARK0000001",
    secretAccessKey: "benchmarkSecretNotReal/00000000000000001",
  },
});
const queueUrl = `${endpoint}/000000000000/hooks`;
const producer = Producer.create({ queueUrl, region: "us-east-1", sqs, batchSize: perRequest });

let taken = 0;
let answered = 0;
const marks = [];
const tenth = Math.floor(messages.length / 10);

function count(number) {
  answered += number;
  const isFirst = marks.length === 0 && answered >= tenth;
  const isLast = marks.length === 1 && answered >= messages.length - tenth;
  if (isFirst || isLast) {
    const { user, system } = process.cpuUsage();
    marks.push([answered, (user + system) * 1000, Number(process.hrtime.bigint())]);
  }
}

function attributes(message) {
  return Object.fromEntries(
    Object.entries(message.attributes).map(([name, value]) => [
      name,
      { DataType: "String", StringValue: value },
    ]),
  );
}

async function work() {
  for (;;) {
    const some = messages.slice(taken, taken + perRequest);
    taken += some.length;
    if (some.length === 0) return;
    if (perRequest === 1) {
      await sqs.send(
        new SendMessageCommand({
          QueueUrl: queueUrl,
          MessageBody: some[0].body,
          MessageAttributes: attributes(some[0]),
        }),
      );
    } else {
      const stored = await producer.send(
        some.map((message, index) => ({
          id: String(index),
          body: message.body,
          messageAttributes: attributes(message),
        })),
      );
      if (stored.length !== some.length) throw new Error("not every entry is stored");
    }
    count(some.length);
  }
}

await Promise.all(Array.from({ length: IN_FLIGHT }, work));
const [[fromCount, fromCpu, fromWall], [toCount, toCpu, toWall]] = marks;
console.log(
  JSON.stringify({
    messages: toCount - fromCount,
    cpu_ns: Math.round(toCpu - fromCpu),
    wall_ns: toWall - fromWall,
  }),
);
