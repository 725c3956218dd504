//! aws-sdk-sqs with its defaults. It is given the same messages, and checks no digest.

use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{MessageAttributeValue, SendMessageBatchRequestEntry};
use aws_sdk_sqs::{Client, Config};
use dispatch_api::Message;

use super::{IN_FLIGHT, Job, KEY_ID, REGION, SECRET, workers};
use crate::Failure;
use crate::workload::{context, message, per_request};

pub(super) fn config(job: &Job) -> Config {
    Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .endpoint_url(job.endpoint())
        .credentials_provider(Credentials::new(KEY_ID, SECRET, None, None, "benchmark"))
        .build()
}

fn attributes(
    message: &Message<'_>,
) -> impl Iterator<Item = Result<(&'static str, MessageAttributeValue), Failure>> {
    message
        .attributes()
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| {
            let value = MessageAttributeValue::builder()
                .data_type("String")
                .string_value(value)
                .build()?;
            Ok((name, value))
        })
}

pub(super) async fn batched(job: Job) -> Result<(), Failure> {
    let client = Client::from_conf(config(&job));
    let per_request = per_request(job.size);
    workers(IN_FLIGHT, || {
        let (job, client) = (job.clone(), client.clone());
        async move {
            let ctx = context();
            let queue_url = job.queue_url();
            loop {
                let hooks = job.workload.take_some(per_request);
                if hooks.is_empty() {
                    return Ok(());
                }
                let mut request = client.send_message_batch().queue_url(&queue_url);
                for (index, hook) in hooks.iter().enumerate() {
                    let message = message(hook, &ctx)?;
                    let mut entry = SendMessageBatchRequestEntry::builder()
                        .id(index.to_string())
                        .message_body(message.encode());
                    for attribute in attributes(&message) {
                        let (name, value) = attribute?;
                        entry = entry.message_attributes(name, value);
                    }
                    request = request.entries(entry.build()?);
                }
                let reply = request.send().await?;
                if reply.successful().len() != hooks.len() {
                    return Err("not every entry is stored".into());
                }
                job.meter.answered(hooks.len());
            }
        }
    })
    .await
}

pub(super) async fn single(job: Job) -> Result<(), Failure> {
    let client = Client::from_conf(config(&job));
    workers(IN_FLIGHT, || {
        let (job, client) = (job.clone(), client.clone());
        async move {
            let ctx = context();
            let queue_url = job.queue_url();
            while let Some(hook) = job.workload.take() {
                let message = message(hook, &ctx)?;
                let mut request = client
                    .send_message()
                    .queue_url(&queue_url)
                    .message_body(message.encode());
                for attribute in attributes(&message) {
                    let (name, value) = attribute?;
                    request = request.message_attributes(name, value);
                }
                request.send().await?;
                job.meter.answered(1);
            }
            Ok(())
        }
    })
    .await
}
