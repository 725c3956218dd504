//! The reference source: as simple as honest can be.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dispatch_api::{Source, SourceError, Subscription, SubscriptionPlan};

use super::client::Client;
use super::place::PlaceKind;
use super::queue::QueueBroker;
use super::settings::ReferenceSourceSettings;
use super::subscription::ReferenceSubscription;
use super::wire::{QueueCall, QueueWire, RedrivePolicy};

/// The highest cap of a redrive policy.
const MAX_ATTEMPTS: u32 = 1_000;

type Around = dyn Fn(Arc<dyn QueueWire>, &SubscriptionPlan) -> Arc<dyn QueueWire> + Send + Sync;

/// Consumes from a place of the reference broker.
pub struct ReferenceSource {
    settings: ReferenceSourceSettings,
    broker: Arc<QueueBroker>,
    around: Option<Box<Around>>,
}

impl ReferenceSource {
    /// A source of these settings.
    #[must_use]
    pub const fn new(settings: ReferenceSourceSettings, broker: Arc<QueueBroker>) -> Self {
        Self {
            settings,
            broker,
            around: None,
        }
    }

    /// Puts something between every subscription and the broker.
    #[must_use]
    pub fn with_wire(
        mut self,
        around: impl Fn(Arc<dyn QueueWire>, &SubscriptionPlan) -> Arc<dyn QueueWire>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.around = Some(Box::new(around));
        self
    }

    fn connect(&self, plan: &SubscriptionPlan) -> Arc<dyn QueueWire> {
        let wire = self.broker.connect();
        match &self.around {
            Some(around) => around(wire, plan),
            None => wire,
        }
    }

    /// The redrive policy of a plan, if it is one that can be.
    fn policy(&self, plan: &SubscriptionPlan) -> Result<Option<RedrivePolicy>, SourceError> {
        if plan.out_retry.is_some() && self.settings.kind != PlaceKind::Log {
            return Err(SourceError::config(
                "RetriesComeBack",
                "this place gives messages back itself: remove out_retry",
            ));
        }
        let (max_attempts, dead_letter) = match (plan.max_attempts, &plan.dead_letter) {
            (None, None) => return Ok(None),
            (Some(max_attempts), Some(dead_letter)) => (max_attempts, dead_letter),
            (Some(_), None) => {
                return Err(SourceError::config(
                    "IncompleteRedrive",
                    "max_attempts is set and dead_letter is not: set both, or neither",
                ));
            }
            (None, Some(_)) => {
                return Err(SourceError::config(
                    "IncompleteRedrive",
                    "dead_letter is set and max_attempts is not: set both, or neither",
                ));
            }
        };
        if !self.settings.redrives {
            return Err(SourceError::config(
                "NoRedrive",
                "this place has no redrive policy: remove max_attempts and dead_letter",
            ));
        }
        if !(1..=MAX_ATTEMPTS).contains(&max_attempts) {
            return Err(SourceError::config(
                "InvalidMaxAttempts",
                format!("max_attempts is {max_attempts}; expected 1 to {MAX_ATTEMPTS}"),
            ));
        }
        if *dead_letter == self.settings.place {
            return Err(SourceError::config(
                "DeadLetterIsSource",
                format!("dead_letter is the source itself, {dead_letter}: name another place"),
            ));
        }
        Ok(Some(RedrivePolicy {
            max_attempts,
            dead_letter: dead_letter.clone(),
        }))
    }
}

#[async_trait]
impl Source for ReferenceSource {
    async fn open(&self, plan: &SubscriptionPlan) -> Result<Arc<dyn Subscription>, SourceError> {
        let policy = self.policy(plan)?;
        let client = Client {
            settings: self.settings.clone(),
            wire: self.connect(plan),
        };
        let max_attempts = policy.as_ref().map(|policy| policy.max_attempts);
        client.call(QueueCall::Open, client.deadline()).await?;
        if let Some(policy) = policy {
            let call = QueueCall::SetRedrive(policy);
            client.call(call, client.deadline()).await?;
        }
        let out_retry = plan.out_retry.clone();
        Ok(Arc::new(ReferenceSubscription::new(
            client,
            max_attempts,
            out_retry,
        )))
    }
}

impl fmt::Debug for ReferenceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceSource")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
