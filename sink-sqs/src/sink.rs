//! The sink itself.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    Admission, BatchEntry, DeliveryContext, Description, DrainReport, Envelope, Guarantees,
    HostServices, InFlight, Message, Ordering, Outcome, Problems, Receipt, Sink, SinkError,
};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::answer::{Asked, sent};
use crate::client::Client;
use crate::config::SqsSinkConfig;
use crate::entry::Entry;
use crate::prepared::Prepared;
use crate::protocol;
use crate::scratch::with_scratch;
use crate::share::{Route, Share};
use crate::telemetry::Telemetry;

/// For how long a FIFO queue recognises a deduplication id.
const DEDUP_WINDOW: Duration = Duration::from_secs(300);

/// How many attributes a message can carry.
const MAX_ATTRIBUTES: usize = 10;

/// Sends deliveries to one queue: a dispatcher's in batches, unless told otherwise, and
/// direct ones alone.
pub struct SqsSink {
    config: SqsSinkConfig,
    route: Arc<Route>,
    /// `None`: every delivery is a request of its own.
    share: Option<Share>,
    services: HostServices,
    telemetry: Telemetry,
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
        let client = Client::new(config.connection(), services)?;
        let route = Arc::new(Route::new(client, config.timeout()));
        let share = config
            .batching()
            .map(|settings| Share::new(&config, settings, &route, services));
        Ok(Self {
            route,
            share: share.transpose()?,
            telemetry: Telemetry::new(config.queue_name()),
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

impl SqsSink {
    /// The message written out, and what it is ordered by. Apart from the delivery itself, so that
    /// nothing else of it is kept while the message waits.
    fn prepare(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<(Prepared, Option<String>), SinkError> {
        let message = Message::for_delivery(envelope, ctx, self.config.inline_max_bytes())?;
        with_scratch(|scratch| {
            let entry = Entry::plan(&self.config, envelope, ctx, &message, scratch)?;
            let prepared = Prepared::new(&entry, ctx.attempt_number(), &self.route);
            // On a standard queue a group is for fairness, and promises no order.
            let ordering_key = entry.group_id.filter(|_| self.config.is_fifo());
            Ok((prepared, ordering_key))
        })
    }

    /// One request for one message.
    async fn send_alone(
        &self,
        message: &Prepared,
        deadline: Instant,
    ) -> Result<Receipt, SinkError> {
        const OPERATION: &str = "send";
        let request = protocol::send_message(self.config.queue_url(), &message.members);
        let began = Instant::now();
        let span = self.telemetry.span(OPERATION, 1);
        let exchange = self
            .route
            .client
            .call(protocol::SEND_MESSAGE, request, deadline)
            .instrument(span.clone())
            .await;
        let answer = exchange.and_then(|exchange| {
            let asked = Asked {
                queue_url: self.config.queue_url(),
                credentials: &exchange.credentials,
                services: &self.services,
            };
            sent(&exchange.answer, message, &asked)
        });
        let answers = std::slice::from_ref(&answer);
        self.telemetry
            .request_ended(OPERATION, began.elapsed(), answers, &span);
        answer
    }

    /// A place in a batch, until the host's own deadline.
    async fn send_along(
        &self,
        share: &Share,
        tenant: &str,
        ordering_key: Option<String>,
        message: Prepared,
        deadline: Option<Instant>,
    ) -> Result<Receipt, SinkError> {
        let mut entry = BatchEntry::new(tenant, message.size, message);
        if let Some(key) = ordering_key {
            entry = entry.with_ordering_key(key);
        }
        if let Some(deadline) = deadline {
            entry = entry.with_deadline(deadline);
        }
        share.submit(entry).await
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
        let (prepared, ordering_key) = self.prepare(envelope, ctx)?;
        match &self.share {
            Some(share) if !ctx.is_direct() => {
                let tenant = envelope.tenant_id().unwrap_or_default();
                self.send_along(share, tenant, ordering_key, prepared, ctx.deadline())
                    .await
            }
            _ => self.send_alone(&prepared, deadline).await,
        }
    }

    fn admission(&self) -> Admission {
        match self.share {
            Some(_) => Admission::SelfLimited,
            None => Admission::HostLimited,
        }
    }

    fn inline_max_bytes(&self) -> Option<NonZeroUsize> {
        Some(self.config.inline_max_bytes())
    }

    fn guarantees(&self) -> Guarantees {
        let guarantees = Guarantees::new(self.durable())
            .with_max_message_bytes(self.config.max_message_bytes())
            .with_max_attributes(MAX_ATTRIBUTES);
        if self.config.is_fifo() {
            let ordering = match self.share {
                Some(_) => Ordering::PerKey,
                None => Ordering::PerKeyWhenAwaited,
            };
            guarantees
                .with_ordering(ordering)
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

    fn flush(&self) {
        if let Some(share) = &self.share {
            share.flush();
        }
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        let Some(share) = &self.share else {
            return self.in_flight.drain(deadline).await;
        };
        // The batcher may have other sinks: it goes on, and only what waits is hurried.
        let hurried = self.in_flight.drain_hurrying(deadline, || share.flush());
        let report = hurried.await;
        if !report.is_complete() {
            share.withdraw();
        }
        report
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
