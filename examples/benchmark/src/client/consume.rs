//! sink-sqs receiving and acknowledging. As its peers do, it looks into no message.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dispatch_api::{
    Consumer, ConsumerSettings, HostServices, Observer, Received, SettleError, Settlement, Source,
    SourceError, Stop, SubscriptionPlan,
};
use sink_sqs::SqsQueue;
use tokio::time::Instant;

use super::{IN_FLIGHT, Job, KEY_ID, REGION, SECRET};
use crate::Failure;
use crate::meter::Meter;

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
