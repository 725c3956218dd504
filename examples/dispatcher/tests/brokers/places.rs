//! Where hooks end up: a queue, a stream and a topic, each read past its sink.

use std::collections::BTreeMap;

use async_trait::async_trait;
use sink_testkit::sqs::{Fault, FaultRule, Hold, SqsServer};

use crate::nats_server::NatsServer;

/// A message as a destination holds it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) body: Vec<u8>,
    /// What stands beside the body: attributes, or headers.
    pub(crate) attributes: BTreeMap<String, Vec<u8>>,
}

/// A destination of one sink.
#[async_trait(?Send)]
pub(crate) trait Place {
    /// What kind of sink delivers there.
    fn kind(&self) -> &'static str;

    /// The options of that sink, as a configuration file has them.
    fn options(&self) -> String;

    /// The messages there, in its order.
    async fn stored(&self) -> Vec<Stored>;

    /// Answers nobody from now on.
    fn hold(&mut self);

    /// Answers those that wait, and everyone after them.
    fn release(&mut self);
}

/// A fresh destination of every kind that can run here.
pub(crate) async fn places() -> Vec<Box<dyn Place>> {
    let mut places: Vec<Box<dyn Place>> = vec![Box::new(Queue::new("hooks.fifo").await)];
    if let Some(server) = NatsServer::start("") {
        server.create_stream().await;
        places.push(Box::new(Stream { server }));
    }
    #[cfg(feature = "kafka")]
    places.push(Box::new(kafka::Topic::start().await));
    #[cfg(not(feature = "kafka"))]
    crate::nats_server::skipped("the dispatcher is built without its feature `kafka`");
    places
}

/// A queue of a server of its own.
pub(crate) struct Queue {
    server: SqsServer,
    name: &'static str,
    hold: Option<Hold>,
}

impl Queue {
    pub(crate) async fn new(name: &'static str) -> Self {
        Self {
            server: crate::support::server_with(&[name]).await,
            name,
            hold: None,
        }
    }
}

#[async_trait(?Send)]
impl Place for Queue {
    fn kind(&self) -> &'static str {
        "sqs"
    }

    fn options(&self) -> String {
        crate::support::sqs_sink(&self.server.queue_url(self.name))
    }

    async fn stored(&self) -> Vec<Stored> {
        let messages = self.server.messages(self.name).unwrap().into_iter();
        let stored = messages.map(|message| Stored {
            body: message.body.into_bytes(),
            attributes: message
                .attributes
                .iter()
                .map(|(name, value)| (name.clone(), value.bytes().to_vec()))
                .collect(),
        });
        stored.collect()
    }

    fn hold(&mut self) {
        let hold = Hold::new();
        let fault = Fault::wait_after_storing(hold.gate());
        self.server.add_fault(FaultRule::on_any(fault).always());
        self.hold = Some(hold);
    }

    fn release(&mut self) {
        self.server.clear_faults();
        self.hold = None;
    }
}

/// A stream of a server of its own.
struct Stream {
    server: NatsServer,
}

#[async_trait(?Send)]
impl Place for Stream {
    fn kind(&self) -> &'static str {
        "nats"
    }

    fn options(&self) -> String {
        let address = self.server.address();
        format!("kind = \"nats\"\nservers = [\"{address}\"]\nsubject = \"hooks.acme\"\n")
    }

    async fn stored(&self) -> Vec<Stored> {
        let jetstream = self.server.jetstream().await;
        let mut stream = jetstream.get_stream("HOOKS").await.unwrap();
        let last = stream.info().await.unwrap().state.last_sequence;
        let mut stored = Vec::new();
        for sequence in 1..=last {
            let message = stream.get_raw_message(sequence).await.unwrap();
            let mut attributes = BTreeMap::new();
            for (name, values) in message.headers.iter() {
                let value = values
                    .first()
                    .map(|value| value.as_str().as_bytes().to_vec());
                attributes.insert(name.to_string(), value.unwrap());
            }
            // What the stream recognises a repeat by.
            attributes.remove("Nats-Msg-Id");
            stored.push(Stored {
                body: message.payload.to_vec(),
                attributes,
            });
        }
        stored
    }

    fn hold(&mut self) {
        self.server.freeze();
    }

    fn release(&mut self) {
        self.server.thaw();
    }
}

#[cfg(feature = "kafka")]
mod kafka {
    use std::time::Duration;

    use async_trait::async_trait;
    use rdkafka::consumer::{BaseConsumer, Consumer as _};
    use rdkafka::message::{Headers as _, Message as _};
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::DefaultProducerContext;
    use rdkafka::{ClientConfig, Offset, TopicPartitionList};

    use super::Stored;
    use crate::relay::Relay;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// A topic of a broker in this process, which the sink reaches by a relay.
    pub(super) struct Topic {
        cluster: MockCluster<'static, DefaultProducerContext>,
        relay: Relay,
    }

    impl Topic {
        pub(super) async fn start() -> Self {
            let cluster = MockCluster::new(1).unwrap();
            cluster.create_topic("hooks", 1, 1).unwrap();
            let address = cluster.bootstrap_servers();
            let (_, port) = address.rsplit_once(':').unwrap();
            Self {
                relay: Relay::start(port.parse().unwrap()).await,
                cluster,
            }
        }
    }

    #[async_trait(?Send)]
    impl super::Place for Topic {
        fn kind(&self) -> &'static str {
            "kafka"
        }

        fn options(&self) -> String {
            let broker = self.relay.address();
            // What is held stays open for as long as the test holds it.
            format!(
                "kind = \"kafka\"\nbrokers = [\"{broker}\"]\ntopic = \"hooks\"\ntimeout_ms = 60000\n"
            )
        }

        async fn stored(&self) -> Vec<Stored> {
            let consumer: BaseConsumer = ClientConfig::new()
                .set("bootstrap.servers", self.cluster.bootstrap_servers())
                .set("group.id", "reader")
                .set("enable.auto.commit", "false")
                .create()
                .unwrap();
            let (_, end) = consumer.fetch_watermarks("hooks", 0, PATIENCE).unwrap();
            let mut all = TopicPartitionList::new();
            all.add_partition_offset("hooks", 0, Offset::Beginning)
                .unwrap();
            consumer.assign(&all).unwrap();
            let read = |_| {
                let message = consumer.poll(PATIENCE).expect("a record in time").unwrap();
                let headers = message.headers().unwrap().iter();
                Stored {
                    body: message.payload().unwrap_or_default().to_vec(),
                    attributes: headers
                        .map(|header| (header.key.to_owned(), header.value.unwrap().to_vec()))
                        .collect(),
                }
            };
            (0..end).map(read).collect()
        }

        fn hold(&mut self) {
            self.relay.hold(true);
        }

        fn release(&mut self) {
            self.relay.hold(false);
        }
    }
}
