//! How long deliveries of sink-sqs wait for their answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dispatch_api::Sink;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::Failure;
use crate::client::{endpoint, queue_url, sink};
use crate::workload::{Workload, context};

/// The rate of the steady stream, in messages a second.
pub(crate) const RATE: u64 = 2_000;

/// Lone messages for every second that the stream takes.
const LONE_PER_SECOND: u64 = 10;

/// Waits in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Half of the lone messages were answered within.
    pub(crate) lone_median: f64,
    /// The slowest lone message.
    pub(crate) lone_worst: f64,
    /// Half of the stream was answered within.
    pub(crate) steady_median: f64,
    /// 99 of 100 messages of the stream were answered within.
    pub(crate) steady_p99: f64,
}

/// Measures and prints one line.
pub(crate) async fn measure(addr: SocketAddr, seconds: u64) -> Result<(), Failure> {
    let sink: Arc<dyn Sink> = Arc::new(sink(&queue_url(&endpoint(addr, false)), true)?);
    let lone = lone(&sink, seconds * LONE_PER_SECOND).await?;
    let steady = steady(&sink, seconds).await?;
    let latency = Latency {
        lone_median: at(&lone, 0.5),
        lone_worst: at(&lone, 1.0),
        steady_median: at(&steady, 0.5),
        steady_p99: at(&steady, 0.99),
    };
    println!("{}", serde_json::to_string(&latency)?);
    Ok(())
}

/// One message after the other, each on an idle sink.
async fn lone(sink: &Arc<dyn Sink>, count: u64) -> Result<Vec<Duration>, Failure> {
    let workload = Workload::new(1_024, usize::try_from(count)? + 1);
    let ctx = context();
    let mut waits = Vec::new();
    while let Some(hook) = workload.take() {
        let began = Instant::now();
        sink.deliver(hook, &ctx).await?;
        waits.push(began.elapsed());
        sleep(Duration::from_millis(20)).await;
    }
    // The first one opened the connection.
    waits.remove(0);
    waits.sort_unstable();
    Ok(waits)
}

/// A message at each tick, whatever became of those before.
async fn steady(sink: &Arc<dyn Sink>, seconds: u64) -> Result<Vec<Duration>, Failure> {
    let workload = Workload::new(1_024, usize::try_from(seconds * RATE)?);
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(RATE)?);
    // A timer that fires late is followed by those it held up: the rate is kept.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut running = JoinSet::new();
    let mut waits = Vec::new();
    for _ in 0..seconds * RATE {
        ticks.tick().await;
        let (sink, workload) = (Arc::clone(sink), Arc::clone(&workload));
        running.spawn(async move {
            let hook = workload.take().ok_or("a hook for every tick")?;
            let began = Instant::now();
            sink.deliver(hook, &context()).await?;
            Ok::<_, Failure>(began.elapsed())
        });
        while let Some(ended) = running.try_join_next() {
            waits.push(ended??);
        }
    }
    while let Some(ended) = running.join_next().await {
        waits.push(ended??);
    }
    waits.sort_unstable();
    Ok(waits)
}

/// The wait that this share of all is within, in milliseconds.
fn at(sorted: &[Duration], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1) as f64;
    sorted
        .get((last * share).round() as usize)
        .map_or(f64::NAN, |wait| wait.as_secs_f64() * 1_000.0)
}
