//! The reference source for the suite.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    Consumer, ConsumerReport, ConsumerSettings, ErrorClass, Outcome, Received, Sink, Source, Stop,
    Subscription, SubscriptionPlan,
};

use super::copies::CopySink;
use super::mutants::{SourceMutant, SourceParts, SourceSeam};
use super::place::{MAX_HOLD, PlaceKind};
use super::queue::QueueBroker;
use super::settings::ReferenceSourceSettings;
use super::source::ReferenceSource;
use crate::conformance::source::{
    BoxedHandler, Operation, RawMessage, SourceAdapter, SourceCapability, SourceFaultKind,
    SourceFaultScript, SourceFixture, SourceOptions, SourceProfile,
};
use crate::conformance::{Clock, Destination, ErrorRow, FixtureError, StoredMessage};
use crate::reference::broker::{KEYS, STRANGER};

/// The reference adapter for sources, honest or broken in one way.
#[derive(Debug, Default)]
pub struct ReferenceSourceAdapter {
    mutant: Option<&'static SourceMutant>,
}

const ORDERED: &str = "ordered-batched";
const PLAIN: &str = "plain-single";
const LOG: &str = "log";
const BARE: &str = "bare";

impl ReferenceSourceAdapter {
    /// The modes: `ordered-batched` promises the most, `plain-single` has groups and no
    /// order, `log` commits in order and retries by copy, and `bare` extends nothing, takes
    /// no redrive policy and has a fixture that plays no faults.
    pub const MODES: [&str; 4] = [ORDERED, PLAIN, LOG, BARE];

    /// The honest one.
    #[must_use]
    pub const fn honest() -> Self {
        Self { mutant: None }
    }

    /// One that is broken in this way.
    #[must_use]
    pub const fn broken(mutant: &'static SourceMutant) -> Self {
        Self {
            mutant: Some(mutant),
        }
    }

    /// What a mode declares: one of [`MODES`](Self::MODES).
    #[must_use]
    pub fn profile(mode: &str) -> SourceProfile {
        let mut profile = SourceProfile::new(mode);
        profile.clock = Clock::Paused;
        profile.delay_step = Duration::from_secs(1);
        profile = profile.with_capabilities(capabilities(mode));
        if mode != LOG {
            profile.max_hold = Some(MAX_HOLD);
            profile.hold_ends_after = MAX_HOLD;
            profile.max_delay = Some(MAX_HOLD);
            profile.max_attempts = Some(1_000);
        }
        if mode != BARE {
            profile.error_table = error_table();
            profile = profile.with_faults(faults(mode));
        }
        profile
    }
}

fn capabilities(mode: &str) -> Vec<SourceCapability> {
    use SourceCapability as Is;
    let mut all = vec![
        Is::Compete,
        Is::Attributes,
        Is::Count,
        Is::SentAt,
        Is::Confirmed,
    ];
    if mode == LOG {
        all.extend([Is::Groups, Is::Order, Is::Copies]);
    } else {
        all.extend([Is::HoldReturns, Is::SingleRetry, Is::Delay]);
    }
    if mode != BARE {
        all.extend([Is::InHand, Is::Restart, Is::Forbidden]);
    }
    if mode == ORDERED || mode == PLAIN {
        all.extend([
            Is::Digests,
            Is::Extension,
            Is::HoldEnds,
            Is::Expire,
            Is::NoticesLoss,
            Is::Redrive,
            Is::DropAtCapIsDead,
        ]);
    }
    match mode {
        ORDERED => all.extend([Is::Order, Is::BatchedSettlement]),
        PLAIN => all.push(Is::Groups),
        _ => {}
    }
    all
}

fn faults(mode: &str) -> Vec<(Operation, SourceFaultKind)> {
    let operations: &[Operation] = match mode {
        LOG => &[Operation::Receive, Operation::Ack],
        _ => &[
            Operation::Receive,
            Operation::Ack,
            Operation::Return,
            Operation::Extend,
        ],
    };
    let mut all = Vec::new();
    for operation in operations {
        for kind in SourceFaultKind::ALL {
            let is_played = match kind {
                SourceFaultKind::Gone | SourceFaultKind::Entry => *operation != Operation::Receive,
                SourceFaultKind::WrongDigest => *operation == Operation::Receive && mode != LOG,
                _ => true,
            };
            if is_played {
                all.push((*operation, kind));
            }
        }
    }
    all
}

fn error_table() -> Vec<ErrorRow> {
    let pause = ErrorClass::RetryAfter(Duration::ZERO);
    [
        ("Missing", ErrorClass::Config, Outcome::NotStored),
        ("AccessDenied", ErrorClass::Config, Outcome::NotStored),
        ("Throttled", pause, Outcome::NotStored),
        ("Internal", ErrorClass::Transient, Outcome::Unknown),
    ]
    .map(|(name, class, outcome)| ErrorRow::new(name, class, outcome))
    .to_vec()
}

#[async_trait]
impl SourceAdapter for ReferenceSourceAdapter {
    fn name(&self) -> &str {
        "reference-source"
    }

    fn profiles(&self) -> Vec<SourceProfile> {
        Self::MODES.map(Self::profile).to_vec()
    }

    async fn fixture(
        &self,
        profile: &SourceProfile,
    ) -> Result<Box<dyn SourceFixture>, FixtureError> {
        Ok(Box::new(ReferenceSourceFixture {
            broker: Arc::new(QueueBroker::new()),
            mode: profile.mode.clone(),
            mutant: self.mutant,
        }))
    }
}

/// A broker of its own for one case.
#[derive(Debug)]
pub struct ReferenceSourceFixture {
    broker: Arc<QueueBroker>,
    mode: String,
    mutant: Option<&'static SourceMutant>,
}

impl ReferenceSourceFixture {
    fn kind(&self) -> PlaceKind {
        match &*self.mode {
            ORDERED => PlaceKind::Ordered,
            LOG => PlaceKind::Log,
            _ => PlaceKind::Plain,
        }
    }

    /// Where there are no groups, all belong to one.
    fn group<'a>(&self, group: &'a str) -> &'a str {
        match &*self.mode {
            PLAIN | LOG => group,
            _ => "all",
        }
    }

    fn seam(&self) -> Option<SourceSeam> {
        self.mutant.map(|mutant| mutant.seam)
    }

    fn settings(
        &self,
        destination: &Destination,
        options: &SourceOptions,
        key_id: &str,
    ) -> Result<ReferenceSourceSettings, String> {
        let mut keys = KEYS.into_iter();
        let key = keys.find(|(known, _)| *known == key_id).unwrap_or(KEYS[0]);
        let options = options.clone().in_group(self.group(&options.group));
        let kind = self.kind();
        let mut settings = ReferenceSourceSettings::new(destination.name(), kind, key, &options)?;
        settings.is_batched = self.mode == ORDERED;
        if self.mode == BARE {
            settings.extends = false;
            settings.redrives = false;
        }
        Ok(settings)
    }

    fn build(
        &self,
        destination: &Destination,
        options: &SourceOptions,
        key_id: &str,
    ) -> Result<Arc<dyn Source>, String> {
        let options = match self.seam() {
            Some(SourceSeam::Options(change)) => change(options),
            _ => options.clone(),
        };
        let settings = self.settings(destination, &options, key_id)?;
        let parts = SourceParts {
            broker: Arc::clone(&self.broker),
            place: destination.name().to_owned(),
            options,
            settings: settings.clone(),
            plan: SubscriptionPlan::new(),
        };
        let source = ReferenceSource::new(settings, Arc::clone(&self.broker));
        Ok(match self.seam() {
            Some(SourceSeam::Wire(mutate)) => Arc::new(source.with_wire(move |wire, plan| {
                let mut parts = parts.clone();
                parts.plan = plan.clone();
                mutate(wire, parts)
            })),
            Some(SourceSeam::Source(mutate)) => mutate(Arc::new(source), parts),
            Some(SourceSeam::Subscription(mutate)) => Arc::new(Broken {
                source,
                parts,
                mutate,
            }),
            Some(SourceSeam::Options(_) | SourceSeam::Consume(_)) | None => Arc::new(source),
        })
    }
}

/// A source whose subscriptions are broken.
#[derive(Debug)]
struct Broken {
    source: ReferenceSource,
    parts: SourceParts,
    mutate: fn(Arc<dyn Subscription>, SourceParts) -> Arc<dyn Subscription>,
}

#[async_trait]
impl Source for Broken {
    async fn open(
        &self,
        plan: &SubscriptionPlan,
    ) -> Result<Arc<dyn Subscription>, dispatch_api::SourceError> {
        let subscription = self.source.open(plan).await?;
        let mut parts = self.parts.clone();
        parts.plan = plan.clone();
        Ok((self.mutate)(subscription, parts))
    }
}

#[async_trait]
impl SourceFixture for ReferenceSourceFixture {
    async fn create(&self, name: &str) -> Result<Destination, FixtureError> {
        self.broker.create(name, self.kind());
        Ok(Destination::new(name))
    }

    fn missing(&self) -> Destination {
        Destination::new("nobody-made-this")
    }

    async fn destinations(&self) -> Result<Vec<String>, FixtureError> {
        Ok(self.broker.places())
    }

    fn source(
        &self,
        destination: &Destination,
        options: &SourceOptions,
    ) -> Result<Arc<dyn Source>, String> {
        self.build(destination, options, KEYS[0].0)
    }

    async fn put(
        &self,
        destination: &Destination,
        messages: &[RawMessage],
    ) -> Result<(), FixtureError> {
        match self.broker.put(destination.name(), messages) {
            true => Ok(()),
            false => Err(FixtureError::new(format!(
                "there is no place {}",
                destination.name()
            ))),
        }
    }

    async fn unsettled(
        &self,
        destination: &Destination,
        group: &str,
    ) -> Result<usize, FixtureError> {
        let group = self.group(group);
        Ok(self.broker.unsettled(destination.name(), group))
    }

    async fn stored(&self, destination: &Destination) -> Result<Vec<StoredMessage>, FixtureError> {
        Ok(self.broker.stored(destination.name()))
    }

    async fn in_hand(&self, destination: &Destination, group: &str) -> Result<usize, FixtureError> {
        if self.mode == BARE {
            return Err(FixtureError::new("this fixture does not see what is held"));
        }
        let group = self.group(group);
        Ok(self.broker.in_hand(destination.name(), group))
    }

    fn forbidden(&self, destination: &Destination) -> Option<Arc<dyn Source>> {
        let profile = ReferenceSourceAdapter::profile(&self.mode);
        let options = SourceOptions::new(&profile);
        let source = self.build(destination, &options, STRANGER);
        source.ok().filter(|_| self.mode != BARE)
    }

    fn sink(&self, destination: &Destination) -> Option<Arc<dyn Sink>> {
        let sink = CopySink::new(Arc::clone(&self.broker), destination.name());
        (self.mode == LOG).then(|| Arc::new(sink) as Arc<dyn Sink>)
    }

    fn faults(&self) -> Option<&dyn SourceFaultScript> {
        (self.mode != BARE).then(|| self.broker.script() as &dyn SourceFaultScript)
    }

    async fn expire(&self, destination: &Destination) -> Result<(), FixtureError> {
        self.broker.expire(destination.name());
        Ok(())
    }

    async fn restart(&self) -> Result<(), FixtureError> {
        self.broker.restart();
        Ok(())
    }

    fn secrets(&self) -> Vec<String> {
        KEYS.map(|(_, secret)| secret.to_owned()).to_vec()
    }

    async fn consume(
        &self,
        subscription: Arc<dyn Subscription>,
        settings: ConsumerSettings,
        handler: BoxedHandler,
        stop: Stop,
    ) -> ConsumerReport {
        if let Some(SourceSeam::Consume(consume)) = self.seam() {
            return consume(subscription, settings, handler, stop).await;
        }
        let handler = move |received: Received| handler(received);
        Consumer::new(settings)
            .run(subscription, handler, stop)
            .await
    }
}
