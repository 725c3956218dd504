//! The topics that a run makes at real brokers, which are deleted when it ends.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication, TopicResult};
use rdkafka::client::DefaultClientContext;
use rdkafka::types::RDKafkaErrorCode;
use sink_testkit::conformance::FixtureError;

/// How long brokers may take to answer a request of topics.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How many topics one request deletes.
const AT_ONCE: usize = 100;

/// The topics that one run made and has not deleted yet.
pub(crate) struct Topics {
    brokers: String,
    patience: Duration,
    made: Mutex<BTreeSet<String>>,
}

impl Topics {
    /// None yet, at the brokers that listen at these addresses, joined by commas, and have
    /// this long for a request.
    pub(crate) fn at(brokers: String, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            brokers,
            patience,
            made: Mutex::default(),
        })
    }

    /// Where the brokers listen.
    pub(crate) fn brokers(&self) -> &str {
        &self.brokers
    }

    /// Creates a topic. Blocks, and is not for a thread that runs tasks.
    pub(crate) fn create(&self, topic: &str, partitions: i32) -> Result<(), FixtureError> {
        self.create_by(topic, || {
            let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
            self.block_on(async |admin, options| admin.create_topics([&new], options).await)
        })
    }

    /// Notes a topic and has it created. It is noted first: where no answer comes, it may be
    /// there.
    pub(crate) fn create_by(
        &self,
        topic: &str,
        create: impl FnOnce() -> Result<Vec<TopicResult>, FixtureError>,
    ) -> Result<(), FixtureError> {
        self.made().insert(topic.to_owned());
        for answer in create()? {
            if let Err((topic, code)) = answer {
                if code == RDKafkaErrorCode::TopicAlreadyExists {
                    // Somebody else's.
                    self.made().remove(&topic);
                }
                return Err(FixtureError::new(format!("create {topic}: {code}")));
            }
        }
        Ok(())
    }

    /// What a run comes to whose topics have to be gone at its end, however it ended.
    pub(crate) fn gone_after(&self, run: ExitCode) -> ExitCode {
        let deleted = self.delete_by(|topics| {
            self.block_on(async |admin, options| admin.delete_topics(topics, options).await)
        });
        match deleted {
            Ok(()) => run,
            Err(error) => {
                eprintln!("topics of this run are left at the brokers: {error}");
                ExitCode::FAILURE
            }
        }
    }

    /// Has what this run made deleted, and nothing else. The error names what is left.
    pub(crate) fn delete_by(
        &self,
        mut delete: impl FnMut(&[&str]) -> Result<Vec<TopicResult>, FixtureError>,
    ) -> Result<(), FixtureError> {
        let made: Vec<String> = std::mem::take(&mut *self.made()).into_iter().collect();
        let mut left = Vec::new();
        for some in made.chunks(AT_ONCE) {
            let names: Vec<&str> = some.iter().map(String::as_str).collect();
            match delete(&names) {
                Ok(answers) => left.extend(answers.into_iter().filter_map(kept)),
                Err(error) => left.push(format!("{} ({error})", names.join(", "))),
            }
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(FixtureError::new(left.join(", "))),
        }
    }

    fn made(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the brokers, on a runtime of its own.
    fn block_on(
        &self,
        ask: impl AsyncFnOnce(
            &AdminClient<DefaultClientContext>,
            &AdminOptions,
        ) -> Result<Vec<TopicResult>, rdkafka::error::KafkaError>,
    ) -> Result<Vec<TopicResult>, FixtureError> {
        let admin = ClientConfig::new()
            .set("bootstrap.servers", &self.brokers)
            .create()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let options = AdminOptions::new()
            .request_timeout(Some(self.patience))
            // The brokers say what became of it before nobody listens.
            .operation_timeout(Some(self.patience / 2));
        Ok(runtime.block_on(ask(&admin, &options))?)
    }
}

/// A topic that an answer leaves, and why.
fn kept(answer: TopicResult) -> Option<String> {
    match answer {
        // One that was never made is gone as well.
        Ok(_) | Err((_, RDKafkaErrorCode::UnknownTopicOrPartition)) => None,
        Err((topic, code)) => Some(format!("{topic} ({code})")),
    }
}
