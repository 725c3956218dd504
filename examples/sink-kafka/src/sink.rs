//! The sink itself.

use std::fmt;
use std::num::NonZeroUsize;

use async_trait::async_trait;
use dispatch_api::{
    Admission, DeliveryContext, Description, DrainReport, Envelope, Guarantees, HostServices,
    InFlight, Ordering, Outcome, Receipt, Sink, SinkError, throttle_after,
};
use rdkafka::producer::future_producer::Delivery;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::config::KafkaSinkConfig;
use crate::producer::{Producers, RawRecord};
use crate::record::Record;
use crate::telemetry::Telemetry;

/// Sends deliveries to one topic, and waits for the brokers' acknowledgement of each.
pub struct KafkaSink {
    config: KafkaSinkConfig,
    producers: Producers,
    services: HostServices,
    telemetry: Telemetry,
    in_flight: InFlight,
}

impl KafkaSink {
    /// A sink of this configuration. Needs neither a network nor a runtime: the first
    /// delivery connects.
    #[must_use]
    pub fn new(config: KafkaSinkConfig, services: &HostServices) -> Self {
        Self {
            producers: Producers::new(config.clone()),
            telemetry: Telemetry::new(config.topic()),
            config,
            services: services.clone(),
            in_flight: InFlight::new(),
        }
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &KafkaSinkConfig {
        &self.config
    }

    /// The moment by which a delivery that starts now has to be answered.
    fn deadline(&self, ctx: &DeliveryContext) -> Result<Instant, SinkError> {
        let now = Instant::now();
        let own = now + self.config.timeout();
        match ctx.deadline() {
            None => Ok(own),
            Some(deadline) if deadline > now => Ok(own.min(deadline)),
            Some(_) => Err(SinkError::transient(
                Outcome::NotStored,
                "DeadlinePassed",
                "the delivery's deadline was over before it began",
            )),
        }
    }

    async fn send(
        &self,
        record: &Record,
        ctx: &DeliveryContext,
        deadline: Instant,
    ) -> Result<Receipt, SinkError> {
        let raw = RawRecord {
            key: Some(&*record.key),
            payload: record.payload.as_bytes(),
            headers: record.headers.clone(),
            timestamp: record.timestamp,
        };
        let pause = || throttle_after(ctx.attempt_number(), self.services.draw());
        let stored = self.producers.store(&raw, deadline, pause).await?;
        Ok(self.receipt(&stored))
    }

    fn receipt(&self, delivery: &Delivery) -> Receipt {
        let topic = self.config.topic();
        let Delivery {
            partition, offset, ..
        } = delivery;
        match offset {
            // The brokers had the message already and do not say where.
            i64::MIN..=-1 => Receipt::new(),
            _ => Receipt::new()
                .with_provider_id(format!("{topic}/{partition}/{offset}"))
                .with_sequence(offset.to_string()),
        }
    }
}

#[async_trait]
impl Sink for KafkaSink {
    async fn deliver(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        let _running = self.in_flight.enter()?;
        let deadline = self.deadline(ctx)?;
        let record = Record::plan(&self.config, envelope, ctx)?;
        let began = Instant::now();
        let span = self.telemetry.span();
        let answer = self
            .send(&record, ctx, deadline)
            .instrument(span.clone())
            .await;
        self.telemetry.answered(began.elapsed(), &answer, &span);
        answer
    }

    fn admission(&self) -> Admission {
        Admission::SelfLimited
    }

    fn inline_max_bytes(&self) -> Option<NonZeroUsize> {
        Some(self.config.inline_max_bytes())
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(self.durable())
            .with_ordering(Ordering::PerKeyWhenAwaited)
            .with_max_message_bytes(self.config.max_message_bytes())
    }

    fn describe(&self) -> Option<Description> {
        Some(Description::new(
            "kafka",
            self.config.brokers().join(","),
            self.config.topic(),
        ))
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        let (report, ()) = tokio::join!(
            self.in_flight.drain(deadline),
            self.producers.flush(deadline)
        );
        report
    }
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink")
            .field("config", &self.config)
            .field("in_flight", &self.in_flight.count())
            .finish_non_exhaustive()
    }
}
