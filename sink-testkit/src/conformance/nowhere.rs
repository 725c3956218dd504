//! Servers that cannot be reached.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use dispatch_api::Outcome;
use serde_json::Value;
use tokio::net::TcpSocket;

/// A name that no resolver has an address for.
const NAMELESS: &str = "nobody.invalid:9";

/// Options of a sink whose server cannot be reached.
#[derive(Clone)]
#[non_exhaustive]
pub struct Unreachable {
    /// What is wrong, in words.
    pub what: &'static str,
    /// The options. The case sets `timeout_ms` in them.
    pub options: Value,
    /// What a delivery has to say of its message.
    pub outcome: Outcome,
}

impl Unreachable {
    /// A server to which no message can leave.
    #[must_use]
    pub const fn new(what: &'static str, options: Value) -> Self {
        Self {
            what,
            options,
            outcome: Outcome::NotStored,
        }
    }

    /// One to which a message may have left, so that the sink cannot know what became of it.
    #[must_use]
    pub const fn after_a_request(mut self) -> Self {
        self.outcome = Outcome::Unknown;
        self
    }
}

impl fmt::Debug for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unreachable")
            .field("what", &self.what)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

/// Addresses of this machine at which no server can be reached, for
/// [`SinkFixture::unreachable`](super::SinkFixture::unreachable). They stay so until it is
/// dropped.
#[derive(Debug)]
pub struct Nowhere {
    /// Has a port, and does not listen at it.
    closed: TcpSocket,
    /// Takes one connection, and has it.
    full: tokio::net::TcpListener,
    _only: TcpStream,
    /// Accepts nothing; its system takes what comes all the same.
    silent: TcpListener,
}

impl Nowhere {
    /// Takes the addresses. Called within a runtime, as fixtures are built.
    ///
    /// # Errors
    ///
    /// When the machine has no ports left.
    pub fn open() -> io::Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bound = || {
            let socket = TcpSocket::new_v4()?;
            socket.bind(any)?;
            io::Result::Ok(socket)
        };
        let full = bound()?.listen(0)?;
        Ok(Self {
            closed: bound()?,
            _only: TcpStream::connect(full.local_addr()?)?,
            full,
            silent: TcpListener::bind(any)?,
        })
    }

    /// The servers to which no connection comes about: a port that nobody listens at, a host
    /// without an address and, on Linux, a listener with no room for another connection, so
    /// that connecting never ends. `options` are those of a sink whose server is at the address
    /// that it is given.
    ///
    /// # Errors
    ///
    /// When the system does not say which ports they are.
    pub fn without_a_connection(
        &self,
        options: impl Fn(&str) -> Value,
    ) -> io::Result<Vec<Unreachable>> {
        let at = |what, address: &str| Unreachable::new(what, options(address));
        let mut all = vec![
            at(
                "a port that nobody listens at",
                &self.closed.local_addr()?.to_string(),
            ),
            at("a host without an address", NAMELESS),
        ];
        // Elsewhere the shortest queue of connections has room for more.
        if cfg!(target_os = "linux") {
            let full = self.full.local_addr()?.to_string();
            all.push(at("a listener that accepts no connection", &full));
        }
        Ok(all)
    }

    /// A server that takes what it is sent and never says anything. Where the client speaks
    /// first, a message may have left: [`Unreachable::after_a_request`].
    ///
    /// # Errors
    ///
    /// When the system does not say which port it is.
    pub fn silent(&self, options: impl Fn(&str) -> Value) -> io::Result<Unreachable> {
        let address = self.silent.local_addr()?.to_string();
        let what = "a server that takes what comes and never answers";
        Ok(Unreachable::new(what, options(&address)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write as _};
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    const SOON: Duration = Duration::from_millis(200);

    fn address(of: &Unreachable) -> SocketAddr {
        of.options.as_str().unwrap().parse().unwrap()
    }

    #[tokio::test]
    async fn nobody_is_reached() {
        let nowhere = Nowhere::open().unwrap();
        let all = nowhere.without_a_connection(|at| json!(at)).unwrap();
        let connect = |of: &Unreachable| TcpStream::connect_timeout(&address(of), SOON);
        let refused = connect(&all[0]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(all[1].options, json!(NAMELESS));
        for full in &all[2..] {
            assert_eq!(connect(full).unwrap_err().kind(), ErrorKind::TimedOut);
        }
    }

    #[tokio::test]
    async fn the_silent_one_takes_what_it_is_sent() {
        let nowhere = Nowhere::open().unwrap();
        let silent = nowhere.silent(|at| json!(at)).unwrap();
        let mut sent = TcpStream::connect_timeout(&address(&silent), SOON).unwrap();
        sent.write_all(b"is anybody there?").unwrap();
        assert_eq!(silent.outcome, Outcome::NotStored);
        assert_eq!(silent.after_a_request().outcome, Outcome::Unknown);
    }

    #[test]
    fn options_are_not_in_debug() {
        let shown = format!("{:?}", Unreachable::new("a test", json!("s3cret")));
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}
