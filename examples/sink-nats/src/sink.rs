//! The sink itself.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use dispatch_api::{
    DeliveryContext, Description, DrainReport, Envelope, Guarantees, HostServices, InFlight,
    Ordering, Outcome, Receipt, Sink, SinkError, throttle_after,
};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::ack::Answer;
use crate::classify;
use crate::config::NatsSinkConfig;
use crate::link::Link;
use crate::record::Record;
use crate::telemetry::Telemetry;

/// Publishes deliveries to one subject, or one of a template, and waits for the stream's
/// acknowledgement of each.
pub struct NatsSink {
    config: NatsSinkConfig,
    /// Shared by every sink of the host with the same servers and credentials.
    link: Arc<Link>,
    services: HostServices,
    telemetry: Telemetry,
    in_flight: InFlight,
}

impl NatsSink {
    /// A sink of this configuration. Needs neither a network nor a runtime: the first
    /// delivery connects.
    #[must_use]
    pub fn new(config: NatsSinkConfig, services: &HostServices) -> Self {
        Self {
            link: Link::shared(config.link(), services),
            telemetry: Telemetry::new(config.subject()),
            config,
            services: services.clone(),
            in_flight: InFlight::new(),
        }
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &NatsSinkConfig {
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

    async fn publish(
        &self,
        record: &Record,
        ctx: &DeliveryContext,
        deadline: Instant,
    ) -> Result<Receipt, SinkError> {
        match self.link.publish(record, deadline).await? {
            Answer::Stored(receipt) => Ok(receipt),
            Answer::Refused(refusal) => {
                let pause = throttle_after(ctx.attempt_number(), self.services.draw());
                Err(classify::refused(&refusal, pause))
            }
        }
    }
}

#[async_trait]
impl Sink for NatsSink {
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
            .publish(&record, ctx, deadline)
            .instrument(span.clone())
            .await;
        self.telemetry.answered(began.elapsed(), &answer, &span);
        answer
    }

    fn inline_max_bytes(&self) -> Option<NonZeroUsize> {
        Some(self.config.inline_max_bytes())
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees =
            Guarantees::new(self.durable()).with_ordering(Ordering::PerKeyWhenAwaited);
        // The stream's window is known only by the options, and promised only by them.
        if let Some(window) = self.config.duplicate_window().filter(|it| !it.is_zero()) {
            guarantees = guarantees.with_dedup_window(window);
        }
        match self.config.max_message_bytes() {
            Some(bytes) => guarantees.with_max_message_bytes(bytes),
            None => guarantees,
        }
    }

    fn describe(&self) -> Option<Description> {
        let servers = self.config.link().servers.iter();
        let servers: Vec<_> = servers
            .map(|server| format!("{}://{}:{}", server.scheme(), server.host(), server.port()))
            .collect();
        Some(Description::new(
            "nats",
            servers.join(","),
            self.config.subject(),
        ))
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        self.in_flight.drain(deadline).await
    }
}

impl fmt::Debug for NatsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSink")
            .field("config", &self.config)
            .field("in_flight", &self.in_flight.count())
            .finish_non_exhaustive()
    }
}
