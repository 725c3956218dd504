//! The clients that receive and acknowledge. None looks into a message.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, MessageSystemAttributeName};
use dispatch_api::{
    Consumer, ConsumerSettings, HostServices, Observer, Received, SettleError, Settlement, Source,
    SourceError, Stop, SubscriptionPlan,
};
use omniqueue::backends::SqsBackend;
use sink_sqs::SqsQueue;
use tokio::time::Instant;

use super::{IN_FLIGHT, Job, KEY_ID, REGION, SECRET, sdk, workers};
use crate::Failure;
use crate::meter::Meter;

/// The most messages of one receive.
const PER_RECEIVE: i32 = 10;

/// How long a receive may wait for a message. There always is one.
const WAIT_SECONDS: i32 = 20;

/// sink-sqs under the consumer of dispatch-api, with 8 handlers.
pub(super) async fn sink(job: Job, gathered: bool) -> Result<(), Failure> {
    let queue = SqsQueue::builder(job.queue_url(), REGION)
        .credentials(KEY_ID, SECRET)
        .batch_settlement(gathered)
        .build(&HostServices::new())?;
    let subscription = queue.open(&SubscriptionPlan::default()).await?;
    let mut settings = ConsumerSettings::default();
    settings.concurrency = NonZeroUsize::new(IN_FLIGHT).ok_or("8 is not zero")?;
    let stop = Stop::new();
    let counter = Arc::new(Counter {
        meter: Arc::clone(&job.meter),
        stop: stop.clone(),
        failed: Mutex::default(),
    });
    let observer: Arc<dyn Observer> = Arc::<Counter>::clone(&counter);
    Consumer::new(settings)
        .with_observer(observer)
        .run(subscription, |_: Received| async { Settlement::Ack }, stop)
        .await;
    match counter.take_failure() {
        Some(failure) => Err(failure.into()),
        None => Ok(()),
    }
}

/// Counts acknowledged messages and stops after the steady part, or at a failure.
struct Counter {
    meter: Arc<Meter>,
    stop: Stop,
    failed: Mutex<Option<String>>,
}

impl Counter {
    fn end(&self) {
        self.stop.by(Instant::now() + Duration::from_secs(5));
    }

    fn fail(&self, error: &dyn fmt::Display) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert_with(|| error.to_string());
        self.end();
    }

    fn take_failure(&self) -> Option<String> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take()
    }
}

impl Observer for Counter {
    fn settled(&self, _: &Received, settlement: Settlement, result: Result<(), &SettleError>) {
        match result {
            Err(error) => self.fail(error),
            // What goes back at the end is not what is measured.
            Ok(()) if settlement == Settlement::Ack => {
                self.meter.answered(1);
                if self.meter.is_over() {
                    self.end();
                }
            }
            Ok(()) => {}
        }
    }

    fn receive_failed(&self, error: &SourceError, _: u64, _: Duration) {
        self.fail(error);
    }
}

/// aws-sdk-sqs: eight tasks that receive ten and delete each, or all ten in one call.
pub(super) async fn by_sdk(job: Job, batched: bool) -> Result<(), Failure> {
    let client = Client::from_conf(sdk::config(&job));
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

/// omniqueue: eight tasks that receive ten and acknowledge each. It asks for no attributes.
pub(super) async fn omni(job: Job) -> Result<(), Failure> {
    let consumer = SqsBackend::builder(job.queue_url())
        .sqs_config(sdk::config(&job))
        .build_consumer()
        .await?;
    let consumer = Arc::new(consumer);
    workers(IN_FLIGHT, || {
        let (job, consumer) = (job.clone(), Arc::clone(&consumer));
        async move {
            let wait = Duration::from_secs(WAIT_SECONDS.unsigned_abs().into());
            while !job.meter.is_over() {
                let deliveries = consumer.receive_all(PER_RECEIVE as usize, wait).await?;
                if deliveries.is_empty() {
                    return Err("a receive without messages".into());
                }
                for delivery in deliveries {
                    delivery.ack().await.map_err(|(error, _)| error)?;
                    job.meter.answered(1);
                }
            }
            Ok(())
        }
    })
    .await
}
