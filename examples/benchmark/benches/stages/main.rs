//! What the stages of one delivery cost, in CPU time of this process.
//!
//! What only sink-sqs itself can reach is measured inside deliveries to the server in a
//! process of its own, between two of the points at which sink-sqs turns to its host:
//!
//! - `sign`: from the question what time it is, which is the last before the signature, to
//!   the end of the span's first poll. The signature, and its request's way to a
//!   connection that waits.
//! - `reconcile`: from the end of the request's span to the metrics of it. The answer is
//!   parsed, its digests are compared, and each message has its own answer.

mod stops;

use std::hint::black_box;
use std::io::{BufRead as _, BufReader};
use std::num::{NonZeroU32, NonZeroUsize};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter};
use criterion::{BenchmarkId, Criterion, Throughput};
use dispatch_api::{DeliveryContext, Envelope, HeaderField, HostServices, Message, Sink};
use rustix::time::{ClockId, clock_gettime};
use sink_sqs::{SqsSink, SqsSinkConfig};
use tokio::runtime::Runtime;

/// User and system time of the process, so that waiting for the server costs nothing.
struct CpuTime;

impl CpuTime {
    /// All that this process has used.
    fn now() -> Duration {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(
            u64::try_from(now.tv_sec).unwrap_or_default(),
            u32::try_from(now.tv_nsec).unwrap_or_default(),
        )
    }
}

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        Self::now()
    }

    fn end(&self, start: Duration) -> Duration {
        Self::now().saturating_sub(start)
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        &Microseconds
    }
}

/// Everything in microseconds.
struct Microseconds;

impl ValueFormatter for Microseconds {
    fn scale_values(&self, _: f64, values: &mut [f64]) -> &'static str {
        for value in values {
            *value /= 1_000.0;
        }
        "µs"
    }

    fn scale_throughputs(
        &self,
        _: f64,
        throughput: &Throughput,
        values: &mut [f64],
    ) -> &'static str {
        let (units, name) = match throughput {
            Throughput::Elements(count) => (*count as f64, "µs/message"),
            _ => (1.0, "µs"),
        };
        for value in values {
            *value /= 1_000.0 * units;
        }
        name
    }

    fn scale_for_machines(&self, _: &mut [f64]) -> &'static str {
        "ns"
    }
}

fn services() -> HostServices {
    HostServices::new().with_seed(7)
}

fn context() -> DeliveryContext {
    DeliveryContext::attempt(NonZeroU32::MIN)
}

fn hook(services: &HostServices, size: usize) -> Envelope {
    Envelope::new(
        services.new_envelope_id(),
        "github",
        1_767_225_600_000,
        vec![b'x'; size],
    )
    .with_tenant("acme")
    .with_headers([
        HeaderField::new("User-Agent", "GitHub-Hookshot/9c1f0d2"),
        HeaderField::new("X-GitHub-Event", "push"),
        HeaderField::new("X-GitHub-Delivery", "delivery-00000001"),
    ])
    .with_content_type("application/json")
    .with_dedupe_key("delivery-00000001")
}

fn config(queue_url: &str, batch: bool) -> SqsSinkConfig {
    SqsSinkConfig::builder(queue_url, "us-east-1")
        .credentials("AKIDBENCHMARK0000001", "benchmarkSecretNotReal")
        .batch(batch)
        .batch_linger_ms(1)
        .build(&services())
        .expect("this configuration is complete")
}

fn stages(criterion: &mut Criterion<CpuTime>) {
    let services = services();
    let ctx = context();
    let inline = NonZeroUsize::new(65_536).expect("65,536 is not zero");
    let mut group = criterion.benchmark_group("message");
    for size in [256, 1_024, 16_384] {
        let hook = hook(&services, size);
        // Computed once for an envelope, so not part of a repeated measurement.
        black_box(hook.sha256());
        group.bench_with_input(BenchmarkId::new("encode", size), &hook, |bencher, hook| {
            bencher.iter(|| {
                let message = Message::for_delivery(black_box(hook), &ctx, inline);
                message.map(|message| message.encode())
            });
        });
        let config = config("http://127.0.0.1:1/0/hooks", true);
        group.bench_with_input(BenchmarkId::new("plan", size), &hook, |bencher, hook| {
            bencher.iter(|| config.preflight(black_box(hook), &ctx));
        });
    }
    group.finish();
}

fn deliveries(criterion: &mut Criterion<CpuTime>) {
    let server = Server::start();
    let services = services();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime of one thread");
    let mut group = criterion.benchmark_group("deliver");
    for (name, batch, count) in [("single", false, 1), ("batch of 10", true, 10)] {
        let config = config(&server.queue_url, batch);
        let sink = SqsSink::new(config, &services).expect("no certificate is needed");
        let hooks: Vec<Envelope> = (0..count).map(|_| hook(&services, 1_024)).collect();
        group.throughput(Throughput::Elements(count));
        group.bench_function(name, |bencher| {
            bencher.iter(|| deliver(&runtime, &sink, &hooks));
        });
    }
    group.finish();
}

/// What lies between two stops of a delivery, for so many hooks of a size in one request.
fn between_stops(
    criterion: &mut Criterion<CpuTime>,
    stage: &str,
    requests: &[(u64, usize)],
    taken: fn() -> Duration,
) {
    let server = Server::start();
    let services = services().with_clock(Arc::new(stops::StopClock));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime of one thread");
    let mut group = criterion.benchmark_group(stage);
    for &(count, size) in requests {
        let config = config(&server.queue_url, count > 1);
        let sink = SqsSink::new(config, &services).expect("no certificate is needed");
        let hooks: Vec<Envelope> = (0..count).map(|_| hook(&services, size)).collect();
        group.bench_function(format!("{count} of {size}"), |bencher| {
            bencher.iter_custom(|iterations| {
                let mut total = Duration::ZERO;
                for _ in 0..iterations {
                    deliver(&runtime, &sink, &hooks);
                    total += taken();
                }
                total
            });
        });
    }
    group.finish();
}

/// Delivers all at once and waits for every answer.
fn deliver(runtime: &Runtime, sink: &SqsSink, hooks: &[Envelope]) {
    let ctx = context();
    runtime.block_on(async {
        let mut running = Vec::with_capacity(hooks.len());
        for hook in hooks {
            running.push(sink.deliver(hook, &ctx));
        }
        for answer in futures_util::future::join_all(running).await {
            answer.expect("the server stores everything");
        }
    });
}

/// The server's process, which ends with its standard input.
struct Server {
    process: Child,
    queue_url: String,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_benchmark"))
            .arg("server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server is built with this");
        let mut line = String::new();
        let output = process.stdout.take().expect("its output is a pipe");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it prints its address");
        Self {
            process,
            queue_url: format!("http://{}/000000000000/hooks", line.trim()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It ends on its own: there is nobody to tell how.
        let _ = self.process.wait();
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .with_measurement(CpuTime)
        .without_plots()
        .configure_from_args();
    stages(&mut criterion);
    deliveries(&mut criterion);
    // Last, because from here on spans and metrics are listened to.
    stops::listen();
    let requests = [(1, 256), (1, 1_024), (1, 16_384), (10, 1_024)];
    between_stops(&mut criterion, "sign", &requests, stops::signing);
    between_stops(&mut criterion, "reconcile", &requests, stops::reconciling);
    criterion.final_summary();
}
