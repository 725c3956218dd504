//! sink-sqs, offered deliveries as a dispatcher offers them.

use std::sync::Arc;

use dispatch_api::{HostServices, Sink};
use sink_sqs::{SqsSink, SqsSinkConfig};

use super::{IN_FLIGHT, Job, KEY_ID, REGION, SECRET, workers};
use crate::Failure;
use crate::workload::{INLINE_MAX_BYTES, MAX_REQUEST_BYTES, context};

/// How many deliveries are outstanding at once when the sink batches.
const OUTSTANDING: usize = 960;

/// How many bytes of bodies are outstanding at once.
const OUTSTANDING_BYTES: usize = 32 << 20;

/// A sink of this queue, with 8 requests in flight.
pub(crate) fn sink(queue_url: &str, batch: bool) -> Result<SqsSink, Failure> {
    let services = HostServices::new();
    let config = SqsSinkConfig::builder(queue_url, REGION)
        .credentials(KEY_ID, SECRET)
        .batch(batch)
        .batch_max_bytes(MAX_REQUEST_BYTES as u64)
        .batch_max_inflight(IN_FLIGHT as u64)
        .inline_max_bytes(INLINE_MAX_BYTES.get() as u64)
        .timeout_ms(30_000)
        .build(&services)?;
    Ok(SqsSink::new(config, &services)?)
}

pub(super) async fn run(job: Job, batch: bool) -> Result<(), Failure> {
    let sink: Arc<dyn Sink> = Arc::new(sink(&job.queue_url(), batch)?);
    let outstanding = match batch {
        true => OUTSTANDING.min(OUTSTANDING_BYTES / job.size.max(1)),
        false => IN_FLIGHT,
    };
    workers(outstanding, || {
        let (job, sink) = (job.clone(), Arc::clone(&sink));
        async move {
            let ctx = context();
            while let Some(hook) = job.workload.take() {
                sink.deliver(hook, &ctx).await?;
                job.meter.answered(1);
            }
            Ok(())
        }
    })
    .await
}
