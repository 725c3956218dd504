//! The Rust clients. Each keeps 8 requests in flight on one thread.

mod consume;
mod floor;
#[cfg(feature = "peers")]
mod omni;
#[cfg(feature = "peers")]
mod sdk;
mod sink;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::Failure;
use crate::meter::Meter;
use crate::workload::Workload;

pub(crate) use self::sink::sink;

/// How many requests every client has in flight.
pub(crate) const IN_FLIGHT: usize = 8;

/// The most messages that a peer receives at once.
#[cfg(feature = "peers")]
const PER_RECEIVE: i32 = 10;

/// How long a peer's receive may wait for a message. There always is one.
#[cfg(feature = "peers")]
const WAIT_SECONDS: i32 = 20;

/// The keys of every client. The server knows none.
pub(crate) const KEY_ID: &str = "AKIDBENCHMARK0000001";
/// See [`KEY_ID`].
pub(crate) const SECRET: &str = "benchmarkSecretNotReal/00000000000000001";
/// The region of every client.
pub(crate) const REGION: &str = "us-east-1";

/// A client that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// The least that can be done: batches over hand-written sockets
    Floor,
    /// sink-sqs as a dispatcher uses it
    SinkBatched,
    /// sink-sqs with `batch = false`
    SinkSingle,
    /// aws-sdk-sqs, batches filled by hand
    SdkBatched,
    /// aws-sdk-sqs, a message a request
    SdkSingle,
    /// omniqueue's `send_raw_batch`, ten a call
    OmniBatched,
    /// omniqueue's `send_raw`
    OmniSingle,
    /// boto3, batches filled by hand
    Boto3Batched,
    /// boto3, a message a request
    Boto3Single,
    /// sqs-producer on the SDK for JavaScript, ten a call
    NodeBatched,
    /// The SDK for JavaScript, a message a request
    NodeSingle,
    /// sink-sqs consuming, a call an outcome
    ConsumeEach,
    /// sink-sqs consuming with `batch_settlement = true`
    ConsumeGathered,
    /// aws-sdk-sqs receiving ten, a delete a message
    SdkConsumeEach,
    /// aws-sdk-sqs receiving ten, deletes batched by hand
    SdkConsumeBatched,
    /// omniqueue's `receive_all` and `ack`
    OmniqueueConsume,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Floor => "hand-written sockets, batches (the floor)",
            Self::SinkBatched => "sink-sqs, batched",
            Self::SinkSingle => "sink-sqs, single",
            Self::SdkBatched => "aws-sdk-sqs, batches by hand",
            Self::SdkSingle => "aws-sdk-sqs, single",
            Self::OmniBatched => "omniqueue, batches by hand",
            Self::OmniSingle => "omniqueue, single",
            Self::Boto3Batched => "boto3, batches by hand",
            Self::Boto3Single => "boto3, single",
            Self::NodeBatched => "sqs-producer (Node), batched",
            Self::NodeSingle => "SDK for JavaScript (Node), single",
            Self::ConsumeEach => "sink-sqs, a call an outcome",
            Self::ConsumeGathered => "sink-sqs, outcomes gathered",
            Self::SdkConsumeEach => "aws-sdk-sqs, a delete a message",
            Self::SdkConsumeBatched => "aws-sdk-sqs, deletes batched by hand",
            Self::OmniqueueConsume => "omniqueue, an ack a message",
        })
    }
}

impl Kind {
    /// Whether this program is the client.
    pub(crate) fn is_rust(self) -> bool {
        !matches!(
            self,
            Self::Boto3Batched | Self::Boto3Single | Self::NodeBatched | Self::NodeSingle
        )
    }

    /// Whether it is in builds with the feature `peers` only.
    pub(crate) fn is_rust_peer(self) -> bool {
        matches!(
            self,
            Self::SdkBatched
                | Self::SdkSingle
                | Self::OmniBatched
                | Self::OmniSingle
                | Self::SdkConsumeEach
                | Self::SdkConsumeBatched
                | Self::OmniqueueConsume
        )
    }

    /// Whether it receives messages; the others send them.
    pub(crate) fn consumes(self) -> bool {
        matches!(
            self,
            Self::ConsumeEach
                | Self::ConsumeGathered
                | Self::SdkConsumeEach
                | Self::SdkConsumeBatched
                | Self::OmniqueueConsume
        )
    }
}

/// What a client is given.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) addr: SocketAddr,
    pub(crate) tls: bool,
    pub(crate) size: usize,
    pub(crate) workload: Arc<Workload>,
    pub(crate) meter: Arc<Meter>,
}

impl Job {
    /// Where requests go.
    pub(crate) fn endpoint(&self) -> String {
        endpoint(self.addr, self.tls)
    }

    /// The queue.
    pub(crate) fn queue_url(&self) -> String {
        queue_url(&self.endpoint())
    }
}

/// Where a server is asked.
pub(crate) fn endpoint(addr: SocketAddr, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{addr}")
}

/// The queue at an endpoint.
pub(crate) fn queue_url(endpoint: &str) -> String {
    format!("{endpoint}/000000000000/hooks")
}

/// Runs one client and prints what it used.
pub(crate) async fn measure(
    kind: Kind,
    addr: SocketAddr,
    tls: bool,
    size: usize,
    messages: usize,
) -> Result<(), Failure> {
    let job = Job {
        addr,
        tls,
        size,
        workload: Workload::new(size, if kind.consumes() { 0 } else { messages }),
        meter: Meter::new(messages),
    };
    let meter = Arc::clone(&job.meter);
    match kind {
        Kind::Floor => floor::run(job).await?,
        Kind::SinkBatched => sink::run(job, true).await?,
        Kind::SinkSingle => sink::run(job, false).await?,
        Kind::ConsumeEach => consume::sink(job, false).await?,
        Kind::ConsumeGathered => consume::sink(job, true).await?,
        #[cfg(feature = "peers")]
        Kind::SdkBatched => sdk::batched(job).await?,
        #[cfg(feature = "peers")]
        Kind::SdkSingle => sdk::single(job).await?,
        #[cfg(feature = "peers")]
        Kind::OmniBatched => omni::batched(job).await?,
        #[cfg(feature = "peers")]
        Kind::OmniSingle => omni::single(job).await?,
        #[cfg(feature = "peers")]
        Kind::SdkConsumeEach => sdk::consume(job, false).await?,
        #[cfg(feature = "peers")]
        Kind::SdkConsumeBatched => sdk::consume(job, true).await?,
        #[cfg(feature = "peers")]
        Kind::OmniqueueConsume => omni::consume(job).await?,
        other => {
            let why = match other.is_rust() {
                true => "is in builds with the feature `peers` only",
                false => "is no Rust program: `run` starts it",
            };
            return Err(format!("{other} {why}").into());
        }
    }
    let measured = meter.measured().ok_or("too few answers to measure")?;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// Runs `count` copies of a worker to their end.
pub(crate) async fn workers<F>(count: usize, mut worker: impl FnMut() -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let mut running = JoinSet::new();
    for _ in 0..count {
        running.spawn(worker());
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}
