//! The batcher that several sinks share, and one sink's part in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dispatch_api::{
    Answer, BatchEntry, BatchSettings, Batcher, HostServices, Problems, QueueFull, throttle_after,
};

use crate::batch::QueueSender;
use crate::client::Client;
use crate::config::SqsSinkConfig;
use crate::prepared::Prepared;

/// How the messages of one sink are sent, in whichever batch they leave.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) client: Client,
    pub(crate) timeout: Duration,
    /// Its sink is drained, and gives up what still waits.
    withdrawn: AtomicBool,
}

impl Route {
    pub(crate) fn new(client: Client, timeout: Duration) -> Self {
        Self {
            client,
            timeout,
            withdrawn: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Relaxed)
    }

    /// Whether messages of both can be in one request.
    pub(crate) fn is_as(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other) || self.client.identity() == other.client.identity()
    }
}

/// The batcher of a queue, and what its sinks want of it.
#[derive(Debug)]
struct Shared {
    batcher: Batcher<QueueSender>,
    /// The settings of the sinks in use, in the order in which those were built.
    wanted: Mutex<Vec<(Arc<Route>, BatchSettings)>>,
}

impl Shared {
    fn wanted(&self) -> MutexGuard<'_, Vec<(Arc<Route>, BatchSettings)>> {
        // Every change is one call: a panic leaves nothing half done.
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One sink's part in a batcher.
#[derive(Debug)]
pub(crate) struct Share {
    shared: Arc<Shared>,
    route: Arc<Route>,
    services: HostServices,
}

impl Share {
    /// A part in the batcher of this queue and these keys within the host.
    ///
    /// The sinks of a FIFO queue have one in any case, or a group of theirs would have two
    /// requests in flight; those of a standard queue have one if they are set alike.
    pub(crate) fn new(
        config: &SqsSinkConfig,
        settings: BatchSettings,
        route: &Arc<Route>,
        services: &HostServices,
    ) -> Result<Self, Problems> {
        let queue_url = config.queue_url();
        let key = match config.is_fifo() {
            true => format!("{queue_url} {}", route.client.keys()),
            false => format!("{queue_url} {} {settings:?}", route.client.identity()),
        };
        let shared = services.pool().get_or_try_create(&key, || {
            let sender = QueueSender::new(config, services);
            Ok(Shared {
                batcher: Batcher::new(sender, settings),
                wanted: Mutex::default(),
            })
        })?;
        {
            let mut wanted = shared.wanted();
            wanted.push((Arc::clone(route), settings));
            let before = shared.batcher.reconfigure(settings);
            if before != settings {
                tracing::warn!(
                    queue = config.queue_name(),
                    ?before,
                    now = ?settings,
                    "the sinks of a FIFO queue share their batches: the options batch_* of the \
                     last one hold for all"
                );
            }
        }
        Ok(Self {
            shared,
            route: Arc::clone(route),
            services: services.clone(),
        })
    }

    /// A place in a batch.
    pub(crate) async fn submit(&self, entry: BatchEntry<Prepared>) -> Answer {
        let attempt = entry.entry.attempt;
        let full = |full: QueueFull| full.into_error(throttle_after(attempt, self.services.draw()));
        self.shared.batcher.submit(entry, full).await
    }

    /// Lets nothing linger that waits now, whoever's it is.
    pub(crate) fn flush(&self) {
        self.shared.batcher.flush();
    }

    /// Gives up what waits of this sink: it is answered `SinkClosed`.
    pub(crate) fn withdraw(&self) {
        self.route.withdrawn.store(true, Ordering::Relaxed);
        self.shared.batcher.withdraw();
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut wanted = self.shared.wanted();
        wanted.retain(|(route, _)| !Arc::ptr_eq(route, &self.route));
        if let Some((_, settings)) = wanted.last() {
            self.shared.batcher.reconfigure(*settings);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::config::SqsSinkConfigBuilder;

    static ROUTE: LazyLock<Arc<Route>> = LazyLock::new(|| route(&config(FIFO, |c| c)));

    const FIFO: &str = "http://127.0.0.1:1/0/hooks.fifo";
    const STANDARD: &str = "http://127.0.0.1:1/0/hooks";

    /// A route that leads nowhere.
    pub(crate) fn nowhere() -> Arc<Route> {
        Arc::clone(&ROUTE)
    }

    fn config(
        queue_url: &str,
        change: impl FnOnce(SqsSinkConfigBuilder) -> SqsSinkConfigBuilder,
    ) -> SqsSinkConfig {
        let builder = SqsSinkConfig::builder(queue_url, "us-east-1").credentials("AKID", "key");
        change(builder).build(&HostServices::new()).unwrap()
    }

    fn route(config: &SqsSinkConfig) -> Arc<Route> {
        let client = Client::new(config.connection(), &HostServices::new()).unwrap();
        Arc::new(Route::new(client, config.timeout()))
    }

    fn share(config: &SqsSinkConfig, services: &HostServices) -> Share {
        let settings = config.batching().unwrap();
        Share::new(config, settings, &route(config), services).unwrap()
    }

    #[test]
    fn sinks_of_a_fifo_queue_share_its_batcher_however_they_are_set_and_others_if_set_alike() {
        let services = HostServices::new();
        let is_shared = |queue_url, change: fn(SqsSinkConfigBuilder) -> SqsSinkConfigBuilder| {
            let one = share(&config(queue_url, |c| c), &services);
            let other = share(&config(queue_url, change), &services);
            Arc::ptr_eq(&one.shared, &other.shared)
        };
        for queue_url in [FIFO, STANDARD] {
            let is_fifo = queue_url == FIFO;
            assert!(is_shared(queue_url, |c| c));
            assert!(!is_shared(queue_url, |c| c.credentials("AKID", "other")));
            assert_eq!(is_shared(queue_url, |c| c.timeout_ms(7)), is_fifo);
            assert_eq!(is_shared(queue_url, |c| c.batch_linger_ms(7)), is_fifo);
            assert_eq!(
                is_shared(queue_url, |c| c.pool_max_idle_per_host(7)),
                is_fifo
            );
            assert_eq!(
                is_shared(queue_url, |c| c.endpoint("http://127.0.0.1:2")),
                is_fifo
            );
        }
    }

    #[test]
    fn the_settings_of_the_sink_that_was_built_last_hold_for_as_long_as_it_is_in_use() {
        let services = HostServices::new();
        let first = config(FIFO, |c| c.batch_linger_ms(1));
        let second = config(FIFO, |c| c.batch_linger_ms(2));
        let one = share(&first, &services);
        let holds = || {
            let batcher = &one.shared.batcher;
            let holds = batcher.reconfigure(BatchSettings::default());
            batcher.reconfigure(holds);
            holds
        };
        assert_eq!(Some(holds()), first.batching());
        let other = share(&second, &services);
        assert_eq!(Some(holds()), second.batching());
        let third = share(&first, &services);
        drop(other);
        assert_eq!(Some(holds()), first.batching());
        drop(third);
        assert_eq!(Some(holds()), first.batching());
    }
}
