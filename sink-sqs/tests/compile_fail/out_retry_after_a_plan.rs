//! Neither does its registration.

use std::sync::Arc;

use dispatch_api::{Sink, SourceExt as _};
use sink_sqs::SqsQueue;

fn register(queue: SqsQueue, sink: Arc<dyn Sink>) {
    let _ = queue.max_attempts(5).dead_letter("dead").out_retry(sink);
}

fn main() {}
