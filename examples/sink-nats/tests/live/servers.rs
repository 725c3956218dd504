//! Servers that cases borrow, each for itself, so that one may be restarted.

use std::sync::{Arc, Mutex, PoisonError};

use sink_testkit::conformance::FixtureError;
use tokio::runtime::{Handle, Runtime};

use super::server::NatsServer;

/// Who may do what. The sink's own user and another may do everything, one may publish
/// nothing, and one reads back.
const USERS: &str = r#"authorization { users: [
  { user: "harbor", password: "harbor-s3cret-41c09be77d2f4a" }
  { user: "depot", password: "depot-s3cret-9d07ac15e3b862" }
  { user: "stranger", password: "stranger-s3cret-5be0c7", permissions: { publish: { deny: ">" } } }
  { user: "reader", password: "reader" }
] }"#;

/// The servers that nobody uses now, and a runtime beside those of the cases.
pub(crate) struct Servers {
    idle: Mutex<Vec<NatsServer>>,
    runtime: Mutex<Option<Runtime>>,
}

impl Servers {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        Self {
            idle: Mutex::default(),
            runtime: Mutex::new(Some(runtime)),
        }
    }

    /// The runtime of what has to go on while a case's own stands still.
    pub(crate) fn runtime(&self) -> Handle {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.as_ref().unwrap().handle().clone()
    }

    /// A server for one case.
    pub(crate) fn borrow(self: &Arc<Self>) -> Result<Borrowed, FixtureError> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let server = match idle {
            Some(server) => server,
            None => NatsServer::start(USERS)
                .ok_or_else(|| FixtureError::new("there is no nats-server to start"))?,
        };
        Ok(Borrowed {
            server: Some(server),
            servers: Arc::clone(self),
        })
    }

    /// Ends all servers. No case runs any more.
    pub(crate) fn stop(&self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.clear();
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A server of one case, for the next when it is dropped.
pub(crate) struct Borrowed {
    server: Option<NatsServer>,
    servers: Arc<Servers>,
}

impl Borrowed {
    pub(crate) fn server(&self) -> &NatsServer {
        self.server.as_ref().unwrap()
    }

    /// Ends the server in order, with all that it knows written down, and starts it again.
    pub(crate) fn restart_in_order(&mut self) {
        let server = self.server.as_mut().unwrap();
        server.stop();
        server.restart();
    }

    /// Kills the server and starts it again, on the same port and store.
    pub(crate) fn restart(&mut self) {
        let server = self.server.as_mut().unwrap();
        server.kill();
        server.restart();
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let mut idle = self
            .servers
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        idle.extend(self.server.take());
    }
}
