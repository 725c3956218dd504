//! A tenant that never stops offering, beside one that sends now and then, on a paused clock.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dispatch_api::{
    Answer, BatchEntry, BatchSender, BatchSettings, Batcher, ErrorClass, Flush, QueueFull, Receipt,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const FLOOD: u64 = 50_000;
const REQUEST: Duration = Duration::from_millis(50);

/// Takes the time of a request, and remembers what it sent and how much was unanswered.
#[derive(Clone, Default)]
struct Slow {
    sent: Arc<Mutex<Vec<String>>>,
    most: Arc<AtomicUsize>,
}

impl BatchSender for Slow {
    type Entry = String;

    async fn send(&self, entries: Vec<String>, _flush: Flush) -> Vec<Answer> {
        sleep(REQUEST).await;
        let answers = entries.iter().map(|_| Ok(Receipt::new())).collect();
        self.sent.lock().unwrap().extend(entries);
        answers
    }

    fn load_changed(&self, entries: usize, _requests: usize) {
        self.most.fetch_max(entries, Ordering::Relaxed);
    }
}

/// Offers an entry again after a pause for as long as it is refused, and counts how often.
async fn offer_until_taken(
    batcher: &Batcher<Slow>,
    tenant: &'static str,
    name: &str,
    pause: Duration,
    refused: &AtomicU64,
) {
    loop {
        let entry = BatchEntry::new(tenant, 100, name.to_owned());
        let full = |full: QueueFull| {
            assert_eq!(full, QueueFull::TenantEntries, "{tenant} is refused");
            full.into_error(pause)
        };
        let Err(error) = batcher.submit(entry, full).await else {
            return;
        };
        assert_eq!(error.class(), ErrorClass::RetryAfter(pause));
        refused.fetch_add(1, Ordering::Relaxed);
        sleep(pause).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_offers_again_whatever_was_refused_delays_another_by_two_requests_at_most() {
    let settings = BatchSettings::default();
    let sender = Slow::default();
    let batcher = Arc::new(Batcher::new(sender.clone(), settings));
    let refused = Arc::new(AtomicU64::new(0));
    let mut flood = JoinSet::new();
    for number in 0..FLOOD {
        let (batcher, refused) = (Arc::clone(&batcher), Arc::clone(&refused));
        // Spread, so that some are offered in every millisecond and no place stays free.
        let pause = Duration::from_millis(1_000 + number * 7_919 % 1_000);
        flood.spawn(async move {
            let name = format!("flood {number}");
            offer_until_taken(&batcher, "flood", &name, pause, &refused).await;
        });
    }

    let none_refused = AtomicU64::new(0);
    let mut quiet = 0;
    while flood.len() as u64 > FLOOD / 10 {
        let start = Instant::now();
        let name = format!("quiet {quiet}");
        offer_until_taken(&batcher, "quiet", &name, REQUEST, &none_refused).await;
        let waited = start.elapsed();
        assert!(
            waited < settings.linger + 2 * REQUEST,
            "{name} waited {waited:?}"
        );
        quiet += 1;
        while flood.try_join_next().is_some_and(|taken| {
            taken.unwrap();
            true
        }) {}
    }
    while let Some(taken) = flood.join_next().await {
        taken.unwrap();
    }
    assert!(quiet > 100, "{quiet} beside the flood");
    let most = sender.most.load(Ordering::Relaxed);
    // All that one tenant may have, and the one entry of the other.
    assert!((1_024..=1_025).contains(&most), "{most} at once");
    assert_eq!(none_refused.into_inner(), 0);
    assert!(refused.load(Ordering::Relaxed) > 5 * FLOOD, "it kept on");
    let mut sent = sender.sent.lock().unwrap().clone();
    sent.sort_unstable();
    let mut expected: Vec<String> = (0..FLOOD).map(|number| format!("flood {number}")).collect();
    expected.extend((0..quiet).map(|number| format!("quiet {number}")));
    expected.sort_unstable();
    assert_eq!(sent, expected, "each is sent once");
}
