//! What a consumer logs that nobody observes.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dispatch_api::{Consumer, ErrorClass, Received, SettleError, Settlement, SourceError, Stop};
use tracing::subscriber::DefaultGuard;

use crate::support::{SECOND, Scripted, Step, settings};

/// What is logged, as text.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn listen() -> (Self, DefaultGuard) {
        let log = Self::default();
        let written = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(move || written.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn count(&self, words: &str) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.matches(words).count()
    }
}

async fn run(
    subscription: &Scripted,
    handler: impl Fn(Received) -> Result<Settlement, ()> + Send + Sync + 'static,
) {
    let mut settings = settings(4);
    settings.until_empty = true;
    settings.handler_timeout = SECOND;
    let handler = Arc::new(handler);
    Consumer::new(settings)
        .run(
            Arc::new(subscription.clone()),
            move |received: Received| {
                let handler = Arc::clone(&handler);
                async move {
                    match handler(received) {
                        Ok(settlement) => settlement,
                        Err(()) => std::future::pending().await,
                    }
                }
            },
            Stop::new(),
        )
        .await;
}

#[tokio::test(start_paused = true)]
async fn of_a_hundred_failed_receives_seven_are_logged_and_that_they_are_over() {
    let (log, _listening) = Written::listen();
    let failed = || SourceError::new(ErrorClass::Config, "AccessDenied", "allow it");
    let mut steps: Vec<Step> = (0..100).map(|_| Step::Fails(failed())).collect();
    steps.push(Step::Brings(vec![("m", None)]));
    run(&Scripted::unordered(steps), |_| Ok(Settlement::Ack)).await;
    assert_eq!(log.count("cannot receive; trying again"), 7);
    assert_eq!(log.count("config: AccessDenied: allow it"), 7);
    assert_eq!(log.count("receiving again"), 1);
    assert_eq!(log.count("consumer{source=\"scripted\"}"), 8);
}

#[tokio::test(start_paused = true)]
async fn panics_time_outs_and_failed_settlements_are_each_logged_once_a_minute() {
    let (log, _listening) = Written::listen();
    const IDS: [&str; 4] = ["panics", "takes too long", "is lost", "is lost too"];
    let brought = || IDS.map(|id| (id, None)).to_vec();
    let subscription = Scripted::unordered([
        Step::Brings(brought()),
        Step::BringsAfter(30 * SECOND, brought()),
        Step::BringsAfter(Duration::from_secs(40), brought()),
    ]);
    subscription.fail_settling("is lost", SettleError::Lost(None));
    subscription.fail_settling("is lost too", SettleError::Lost(None));
    run(&subscription, |received| {
        assert!(received.id() != "panics", "a panic");
        match received.id() {
            "takes too long" => Err(()),
            _ => Ok(Settlement::Ack),
        }
    })
    .await;
    assert_eq!(log.count("a handler panicked"), 2, "at 0 s and at 70 s");
    assert_eq!(log.count("took longer than handler_timeout"), 2);
    assert_eq!(
        log.count("count=2"),
        2,
        "the one that was not logged is counted"
    );
    assert_eq!(log.count("not known to have taken effect"), 1);
    assert_eq!(log.count("consumer{source=\"scripted\"}"), 5);
}
