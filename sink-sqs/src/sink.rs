//! The sink itself.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    DeliveryContext, Description, DrainReport, Envelope, Guarantees, HostServices, InFlight,
    Message, Ordering, Outcome, Problems, Receipt, Sink, SinkError,
};
use tokio::time::Instant;

use crate::answer::{Asked, sent};
use crate::client::Client;
use crate::config::SqsSinkConfig;
use crate::entry::Entry;
use crate::protocol;

/// For how long a FIFO queue recognises a deduplication id.
const DEDUP_WINDOW: Duration = Duration::from_secs(300);

/// How many attributes a message can carry.
const MAX_ATTRIBUTES: usize = 10;

/// Sends each delivery to one queue.
pub struct SqsSink {
    config: SqsSinkConfig,
    client: Client,
    services: HostServices,
    in_flight: InFlight,
}

impl SqsSink {
    /// A sink of this configuration. Reads the configured certificates, and needs no
    /// network.
    ///
    /// # Errors
    ///
    /// What keeps it from making connections, at the key `http.root_certificates` or
    /// `http.proxy`.
    pub fn new(config: SqsSinkConfig, services: &HostServices) -> Result<Self, Problems> {
        Ok(Self {
            client: Client::new(&config, services)?,
            config,
            services: services.clone(),
            in_flight: InFlight::new(),
        })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &SqsSinkConfig {
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
}

#[async_trait]
impl Sink for SqsSink {
    async fn deliver(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        let _running = self.in_flight.enter()?;
        let deadline = self.deadline(ctx)?;
        let message = Message::for_delivery(envelope, ctx, self.config.inline_max_bytes())?;
        let entry = Entry::plan(&self.config, envelope, ctx, &message)?;
        let request = protocol::send_message(self.config.queue_url(), &entry);
        let exchange = self
            .client
            .call(protocol::SEND_MESSAGE, request, deadline)
            .await?;
        sent(
            &exchange.answer,
            &entry,
            &Asked {
                queue_url: self.config.queue_url(),
                attempt: ctx.attempt_number(),
                now: self.services.now(),
                draw: self.services.draw(),
                credentials: &exchange.credentials,
            },
        )
    }

    fn inline_max_bytes(&self) -> Option<NonZeroUsize> {
        Some(self.config.inline_max_bytes())
    }

    fn guarantees(&self) -> Guarantees {
        let guarantees = Guarantees::new(self.durable())
            .with_max_message_bytes(self.config.max_message_bytes())
            .with_max_attributes(MAX_ATTRIBUTES);
        if self.config.is_fifo() {
            guarantees
                .with_ordering(Ordering::PerKeyWhenAwaited)
                .with_dedup_window(DEDUP_WINDOW)
        } else {
            guarantees
        }
    }

    fn describe(&self) -> Option<Description> {
        let queue = match self.config.is_fifo() {
            true => "fifo",
            false => "standard",
        };
        Some(
            Description::new("sqs", self.config.endpoint(), self.config.queue_name())
                .with_property("queue_type", queue)
                .with_property("queue_url", self.config.queue_url())
                .with_property("region", self.config.region()),
        )
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        self.in_flight.drain(deadline).await
    }
}

impl fmt::Debug for SqsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsSink")
            .field("config", &self.config)
            .field("in_flight", &self.in_flight.count())
            .finish_non_exhaustive()
    }
}
