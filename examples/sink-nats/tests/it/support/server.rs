//! A `nats-server` with JetStream, started for one test and stopped with it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use async_nats::jetstream::{self, stream};
use tempfile::TempDir;

/// One server, on a port and with a store that it keeps over restarts.
pub(crate) struct NatsServer {
    program: PathBuf,
    port: u16,
    /// Its configuration and its store.
    directory: TempDir,
    child: Child,
}

/// Starts a server, or returns from the test where there is none to start.
macro_rules! server_or_skip {
    ($($configuration:expr)?) => {
        match crate::support::server::NatsServer::start(concat!($($configuration)?)) {
            Some(server) => server,
            None => return,
        }
    };
}
pub(crate) use server_or_skip;

/// Notes that something is skipped, past the capture of the test harness; fails where it has
/// to be there.
pub(crate) fn skipped(why: &str) {
    for variable in [
        "REQUIRE_LIVE",
        "SINK_NATS_REQUIRE_LIVE",
        "NATS_REQUIRE_LIVE",
    ] {
        assert!(
            std::env::var_os(variable).is_none_or(|value| value != "1"),
            "{variable}=1, and {why}"
        );
    }
    // The harness captures what the macros print, and nothing else.
    let note = format!("skipped: {why}\n");
    std::io::stderr().write_all(note.as_bytes()).unwrap();
}

impl NatsServer {
    /// Starts one whose configuration also has these lines; `None`, and a note, where the
    /// program is missing and need not be there.
    pub(crate) fn start(configuration: &str) -> Option<Self> {
        let Some(program) = find_program() else {
            skipped("there is no nats-server on the PATH");
            return None;
        };
        // Between the choice of a free port and its use somebody else may take it.
        (0..10)
            .find_map(|_| Self::try_start(&program, configuration))
            .map_or_else(|| panic!("nats-server finds no port that stays free"), Some)
    }

    /// `None` where it ends at once.
    fn try_start(program: &Path, configuration: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\nserver_name: \"{}\"\n\
             jetstream {{ store_dir: \"{}\" }}\n{configuration}\n",
            name_of(&directory),
            directory.path().join("store").display()
        );
        std::fs::write(directory.path().join("server.conf"), text).unwrap();
        let child = spawn(program, &directory);
        let mut server = Self {
            program: program.to_owned(),
            port,
            directory,
            child,
        };
        server.is_ready().then_some(server)
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server as a crash does.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// Ends the server in order: what it knows is written down.
    pub(crate) fn stop(&mut self) {
        self.signal("-TERM");
        self.child.wait().unwrap();
    }

    /// Starts it again after [`NatsServer::kill`] or [`NatsServer::stop`]: same port, same store.
    pub(crate) fn restart(&mut self) {
        for _ in 0..10 {
            self.child = spawn(&self.program, &self.directory);
            if self.is_ready() {
                return;
            }
        }
        panic!("nats-server does not start again:\n{}", self.log());
    }

    /// Stops it from answering, without closing anything.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
        // A signal is sent at once, and obeyed thread by thread.
        for _ in 0..200 {
            if self.is_stopped() {
                return;
            }
            pause();
        }
        panic!("nats-server goes on after SIGSTOP");
    }

    /// Lets it go on after [`NatsServer::freeze`].
    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    /// A client without credentials.
    pub(crate) async fn jetstream(&self) -> jetstream::Context {
        jetstream::new(async_nats::connect(self.address()).await.unwrap())
    }

    /// Creates the stream `HOOKS`, which takes `hooks.>`.
    pub(crate) async fn create_stream(&self) -> stream::Stream {
        self.create_stream_with(|_| {}).await
    }

    /// [`NatsServer::create_stream`], with a changed configuration.
    pub(crate) async fn create_stream_with(
        &self,
        change: impl FnOnce(&mut stream::Config),
    ) -> stream::Stream {
        let mut config = stream::Config {
            name: "HOOKS".to_owned(),
            subjects: vec!["hooks.>".to_owned()],
            ..stream::Config::default()
        };
        change(&mut config);
        self.jetstream().await.create_stream(config).await.unwrap()
    }

    fn signal(&self, signal: &str) {
        let ran = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(ran.success());
    }

    /// Whether every thread is stopped, as far as the system tells.
    fn is_stopped(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.child.id())) else {
            return true;
        };
        threads.flatten().all(|thread| {
            let state = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // The state follows the name, which stands in parentheses.
            state
                .rsplit_once(") ")
                .is_none_or(|(_, state)| state.starts_with('T'))
        })
    }

    /// Waits until it greets, which it does once everything of it runs; `false` where it ends
    /// before. On its port another server may greet.
    fn is_ready(&mut self) -> bool {
        let name = format!("\"{}\"", name_of(&self.directory));
        for _ in 0..200 {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if let Ok(socket) = TcpStream::connect(("127.0.0.1", self.port)) {
                socket
                    .set_read_timeout(Some(Duration::from_secs(5)))
                    .unwrap();
                let mut greeting = String::new();
                if BufReader::new(socket).read_line(&mut greeting).is_ok()
                    && greeting.starts_with("INFO ")
                    && greeting.contains(&name)
                {
                    return true;
                }
            }
            pause();
        }
        panic!("nats-server does not start:\n{}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "between two looks at another process, up to a bound"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

pub(crate) fn find_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Debian puts it where not every user looks.
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/bin")])
        .map(|directory| directory.join("nats-server"))
        .find(|program| program.is_file())
}

/// A name that no other server has.
fn name_of(directory: &TempDir) -> String {
    let name = directory.path().file_name().unwrap();
    name.to_string_lossy().into_owned()
}

fn spawn(program: &Path, directory: &TempDir) -> Child {
    Command::new(program)
        .arg("--config")
        .arg(directory.path().join("server.conf"))
        .arg("--log")
        .arg(directory.path().join("log"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
