//! aws-sdk-sqs with its defaults. It is given the same messages, and checks no digest.

use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, MessageAttributeValue, MessageSystemAttributeName,
    SendMessageBatchRequestEntry,
};
use aws_sdk_sqs::{Client, Config};
use dispatch_api::Message;

use super::{IN_FLIGHT, Job, KEY_ID, PER_RECEIVE, REGION, SECRET, WAIT_SECONDS, workers};
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

/// Eight tasks that receive ten and delete each, or all ten in one call.
pub(super) async fn consume(job: Job, batched: bool) -> Result<(), Failure> {
    let client = Client::from_conf(config(&job));
    workers(IN_FLIGHT, || {
        let (job, client) = (job.clone(), client.clone());
        async move {
            let queue_url = job.queue_url();
            while !job.meter.is_over() {
                let handles = receive(&client, &queue_url).await?;
                if batched {
                    let count = handles.len();
                    delete_together(&client, &queue_url, handles).await?;
                    job.meter.answered(count);
                    continue;
                }
                for handle in handles {
                    let request = client.delete_message().queue_url(&queue_url);
                    request.receipt_handle(handle).send().await?;
                    job.meter.answered(1);
                }
            }
            Ok(())
        }
    })
    .await
}

/// Receives what sink-sqs receives: the bodies and all attributes.
async fn receive(client: &Client, queue_url: &str) -> Result<Vec<String>, Failure> {
    let reply = client
        .receive_message()
        .queue_url(queue_url)
        .max_number_of_messages(PER_RECEIVE)
        .wait_time_seconds(WAIT_SECONDS)
        .message_attribute_names("All")
        .message_system_attribute_names(MessageSystemAttributeName::All)
        .send()
        .await?;
    let messages = reply.messages.unwrap_or_default();
    let handles = messages.into_iter().map(|message| message.receipt_handle);
    let handles: Option<Vec<String>> = handles.collect();
    handles
        .filter(|handles| !handles.is_empty())
        .ok_or_else(|| "a receive without messages and their handles".into())
}

async fn delete_together(
    client: &Client,
    queue_url: &str,
    handles: Vec<String>,
) -> Result<(), Failure> {
    let count = handles.len();
    let mut request = client.delete_message_batch().queue_url(queue_url);
    for (index, handle) in handles.into_iter().enumerate() {
        let entry = DeleteMessageBatchRequestEntry::builder()
            .id(index.to_string())
            .receipt_handle(handle)
            .build()?;
        request = request.entries(entry);
    }
    let reply = request.send().await?;
    match reply.successful().len() == count {
        true => Ok(()),
        false => Err("not every message is deleted".into()),
    }
}
