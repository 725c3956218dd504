//! Random arrivals, outcomes, groups and stops: every delivery is settled once, in order.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    Consumer, Delivery, Lease, Received, SettleError, Settlement, SourceError, Stop, Subscription,
};
use tokio::time::{Instant, sleep};

use crate::support::settings;

const MESSAGES: u32 = 60;

/// A small FIFO broker: a message is in order behind the others of its group, and locked
/// behind them while they are out.
struct Broker {
    random: Mutex<fastrand::Rng>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What every group still holds, in order.
    left: Vec<Vec<u32>>,
    /// Which of a group are out, in order.
    out: Vec<Vec<u32>>,
    /// How often each delivery was settled, by its number.
    settled: HashMap<u64, u32>,
    delivered: u64,
    /// The messages that handlers acknowledged, in order, by group.
    acked: Vec<Vec<u32>>,
    faults: Vec<String>,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Broker")
    }
}

impl Broker {
    fn new(seed: u64, groups: usize) -> Arc<Self> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut left = vec![Vec::new(); groups];
        for message in 0..MESSAGES {
            left[random.usize(..groups)].push(message);
        }
        Arc::new(Self {
            random: Mutex::new(random),
            state: Mutex::new(State {
                left,
                out: vec![Vec::new(); groups],
                acked: vec![Vec::new(); groups],
                ..State::default()
            }),
        })
    }

    fn draw(&self, below: u64) -> u64 {
        self.random.lock().unwrap().u64(..below)
    }
}

#[derive(Clone, Debug)]
struct Subscribed(Arc<Broker>);

#[derive(Debug)]
struct Drawn {
    broker: Arc<Broker>,
    number: u64,
    message: u32,
    group: usize,
    received: Received,
}

#[async_trait]
impl Subscription for Subscribed {
    async fn receive(&self, max: NonZeroUsize) -> Result<Vec<Box<dyn Delivery>>, SourceError> {
        sleep(Duration::from_millis(self.0.draw(300))).await;
        if self.0.draw(8) == 0 {
            return Err(SourceError::transient("Drawn", ""));
        }
        let mut state = self.0.state.lock().unwrap();
        let mut deliveries: Vec<Box<dyn Delivery>> = Vec::new();
        let groups = state.left.len();
        let first = usize::try_from(self.0.draw(groups as u64)).unwrap();
        for group in (0..groups).map(|offset| (first + offset) % groups) {
            if !state.out[group].is_empty() {
                continue;
            }
            let room = max.get() - deliveries.len();
            let taken: Vec<u32> = state.left[group].iter().copied().take(room).collect();
            for message in taken {
                state.out[group].push(message);
                state.delivered += 1;
                let number = state.delivered;
                let received = Received::new(message.to_string(), "", Lease::unlimited())
                    .with_group(Some(group.to_string()));
                deliveries.push(Box::new(Drawn {
                    broker: Arc::clone(&self.0),
                    number,
                    message,
                    group,
                    received,
                }));
            }
        }
        Ok(deliveries)
    }

    fn is_ordered(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        "drawn"
    }

    async fn close(&self) {}
}

#[async_trait]
impl Delivery for Drawn {
    fn received(&self) -> &Received {
        &self.received
    }

    async fn settle(self: Box<Self>, settlement: Settlement) -> Result<(), SettleError> {
        sleep(Duration::from_millis(self.broker.draw(50))).await;
        let is_unknown = self.broker.draw(12) == 0;
        let mut state = self.broker.state.lock().unwrap();
        *state.settled.entry(self.number).or_default() += 1;
        let message = self.message;
        state.out[self.group].retain(|out| *out != message);
        // Without an answer it may have taken effect, and here it has not.
        if !settlement.brings_it_back() && !is_unknown {
            if state.left[self.group].first() != Some(&message) {
                let fault = format!("{message} was settled before one that stands before it");
                state.faults.push(fault);
            }
            state.left[self.group].retain(|left| *left != message);
            state.acked[self.group].push(message);
        }
        match is_unknown {
            true => Err(SettleError::Unknown(SourceError::transient("Drawn", ""))),
            false => Ok(()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_random_lives_settle_every_delivery_once_and_keep_the_order() {
    for seed in 0..1_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let broker = Broker::new(seed, random.usize(1..8));
        let running = Arc::new(Mutex::new(HashMap::<String, u32>::new()));
        let handler = {
            let (broker, running) = (Arc::clone(&broker), Arc::clone(&running));
            move |received: Received| {
                let (broker, running) = (Arc::clone(&broker), Arc::clone(&running));
                let group = received.group().unwrap().to_owned();
                let beside = {
                    let mut running = running.lock().unwrap();
                    let beside = running.entry(group.clone()).or_default();
                    *beside += 1;
                    *beside
                };
                if beside > 1 {
                    let fault = format!("{beside} of group {group} run");
                    broker.state.lock().unwrap().faults.push(fault);
                }
                async move {
                    let ended = Ended(running, group);
                    sleep(Duration::from_millis(broker.draw(400))).await;
                    drop(ended);
                    match broker.draw(10) {
                        0 => Settlement::Retry,
                        1 => Settlement::RetryAfter(Duration::from_millis(100)),
                        2 => Settlement::Drop,
                        3 => unreachable!("a handler that panics"),
                        _ => Settlement::Ack,
                    }
                }
            }
        };
        let mut settings = settings(random.usize(1..12));
        settings.handler_timeout = Duration::from_millis(350);
        let stop = Stop::new();
        let stopping = async {
            sleep(Duration::from_millis(random.u64(..20_000))).await;
            stop.by(Instant::now() + Duration::from_millis(random.u64(..1_000)));
        };
        let consumer = Consumer::new(settings);
        let subscribed = Arc::new(Subscribed(Arc::clone(&broker)));
        let run = consumer.run(subscribed, handler, stop.clone());
        let (report, ()) = tokio::join!(run, stopping);
        let state = broker.state.lock().unwrap();
        assert_eq!(state.faults, Vec::<String>::new(), "seed {seed}");
        assert!(
            state.settled.values().all(|times| *times == 1),
            "seed {seed}"
        );
        // A receive that was dropped at the deadline delivered what nobody got.
        assert_eq!(state.settled.len() as u64, report.received, "seed {seed}");
        let told = report.acked
            + report.retried
            + report.dropped
            + report.given_back
            + report.abandoned
            + report.unsettled;
        assert_eq!(told, report.received, "seed {seed}: {report:?}");
        for acked in &state.acked {
            assert!(acked.is_sorted(), "seed {seed}: {acked:?}");
        }
    }
}

/// A handler of a group ended, however.
struct Ended(Arc<Mutex<HashMap<String, u32>>>, String);

impl Drop for Ended {
    fn drop(&mut self) {
        *self.0.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}
