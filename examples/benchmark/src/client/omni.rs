//! omniqueue's SQS backend. It has no attributes, so it sends the bodies alone.

use std::sync::Arc;
use std::time::Duration;

use omniqueue::QueueProducer as _;
use omniqueue::backends::SqsBackend;
use omniqueue::backends::sqs::SqsProducer;

use super::{IN_FLIGHT, Job, PER_RECEIVE, WAIT_SECONDS, sdk, workers};
use crate::Failure;
use crate::workload::{context, message, per_request};

async fn producer(job: &Job) -> Result<Arc<SqsProducer>, Failure> {
    let producer = SqsBackend::builder(job.queue_url())
        .sqs_config(sdk::config(job))
        .build_producer()
        .await?;
    Ok(Arc::new(producer))
}

pub(super) async fn batched(job: Job) -> Result<(), Failure> {
    let producer = producer(&job).await?;
    let per_request = per_request(job.size);
    workers(IN_FLIGHT, || {
        let (job, producer) = (job.clone(), Arc::clone(&producer));
        async move {
            let ctx = context();
            loop {
                let hooks = job.workload.take_some(per_request);
                if hooks.is_empty() {
                    return Ok(());
                }
                // It asks for what can be borrowed as a `String`, which a `String` cannot.
                let bodies = hooks
                    .iter()
                    .map(|hook| Ok(Box::new(message(hook, &ctx)?.encode())))
                    .collect::<Result<Vec<Box<String>>, Failure>>()?;
                producer.send_raw_batch(bodies).await?;
                job.meter.answered(hooks.len());
            }
        }
    })
    .await
}

pub(super) async fn single(job: Job) -> Result<(), Failure> {
    let producer = producer(&job).await?;
    workers(IN_FLIGHT, || {
        let (job, producer) = (job.clone(), Arc::clone(&producer));
        async move {
            let ctx = context();
            while let Some(hook) = job.workload.take() {
                let body = message(hook, &ctx)?.encode();
                producer.send_raw(&body).await?;
                job.meter.answered(1);
            }
            Ok(())
        }
    })
    .await
}

/// Eight tasks that receive ten and acknowledge each. It asks for no attributes.
pub(super) async fn consume(job: Job) -> Result<(), Failure> {
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
