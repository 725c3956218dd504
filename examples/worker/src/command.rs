//! One run of the command: the body goes in, the exit status comes out.

use std::collections::VecDeque;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dispatch_api::Settlement;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// As much of the output's end as is kept: its last line.
const KEPT: usize = 4_096;

/// How long the output of a command that has ended is waited for.
const REST_OF_OUTPUT: Duration = Duration::from_millis(100);

/// The exit statuses that mean something else than `retry`; 75 is the failure of `sysexits.h`
/// that time may heal.
const ACK: i32 = 0;
const RETRY: i32 = 75;
const DROP: i32 = 100;

/// Runs the command to its end. Dropping the future kills it, and what it started; what it
/// leaves running at its end stays.
///
/// # Errors
///
/// A command that cannot be run.
pub(crate) async fn run(
    command: &[String],
    variables: Vec<(String, String)>,
    body: Bytes,
) -> io::Result<(Settlement, Option<String>)> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| io::Error::other("no command"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    let mut child = command.spawn()?;
    let mut group = Group::of(&child);
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let writing = async move {
        if let Some(mut stdin) = stdin {
            // A command that does not read its input is none the worse for it.
            let _ = stdin.write_all(&body).await;
        }
    };
    let output = Mutex::new(VecDeque::with_capacity(KEPT));
    let reading = async {
        if let Some(stdout) = stdout {
            keep_end_of(stdout, &output).await;
        }
    };
    let pipes = async {
        tokio::join!(writing, reading);
    };
    tokio::pin!(pipes);
    let status = tokio::select! {
        () = &mut pipes => child.wait().await?,
        status = child.wait() => {
            // What the command leaves running may hold its pipes open for as long as it likes.
            let _ = timeout(REST_OF_OUTPUT, &mut pipes).await;
            status?
        }
    };
    group.disarm();
    let mut kept = output.lock().unwrap_or_else(PoisonError::into_inner);
    let output: Vec<u8> = std::mem::take(&mut *kept).into();
    Ok(outcome(status, &output))
}

/// What an exit status and the output's end mean, and what to tell about it.
fn outcome(status: ExitStatus, output: &[u8]) -> (Settlement, Option<String>) {
    match status.code() {
        Some(ACK) => (Settlement::Ack, None),
        Some(DROP) => (Settlement::Drop, None),
        Some(RETRY) => match asked_delay(output) {
            Some(delay) => (Settlement::RetryAfter(delay), None),
            None => (Settlement::Retry, None),
        },
        Some(code) => (Settlement::Retry, Some(format!("exit status {code}"))),
        None => (
            Settlement::Retry,
            Some(format!("the command ended by {status}")),
        ),
    }
}

/// The seconds of a last line `retry_after=SECONDS`.
fn asked_delay(output: &[u8]) -> Option<Duration> {
    let output = String::from_utf8_lossy(output);
    let line = output.trim_end().lines().next_back()?;
    let seconds: f64 = line.trim().strip_prefix("retry_after=")?.parse().ok()?;
    // Neither negative nor without an end.
    Duration::try_from_secs_f64(seconds).ok()
}

async fn keep_end_of(mut stdout: impl AsyncRead + Unpin, kept: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; 1_024];
    loop {
        match stdout.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(&buffer[..read]);
                let over = kept.len().saturating_sub(KEPT);
                kept.drain(..over);
            }
        }
    }
}

/// The process group of a command, killed unless it ended.
struct Group {
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
}

impl Group {
    fn of(child: &Child) -> Self {
        #[cfg(unix)]
        {
            let id = child.id().and_then(|id| i32::try_from(id).ok());
            Self {
                leader: id.and_then(rustix::process::Pid::from_raw),
            }
        }
        #[cfg(not(unix))]
        {
            let _ = child;
            Self {}
        }
    }

    fn disarm(&mut self) {
        #[cfg(unix)]
        {
            self.leader = None;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(leader) = self.leader {
            // It may have ended this moment.
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    fn exited(code: i32, output: &str) -> Settlement {
        outcome(ExitStatus::from_raw(code << 8), output.as_bytes()).0
    }

    #[test]
    fn the_exit_status_is_the_outcome() {
        assert_eq!(exited(0, "retry_after=5"), Settlement::Ack);
        assert_eq!(exited(75, ""), Settlement::Retry);
        assert_eq!(exited(100, ""), Settlement::Drop);
        for other in [1, 2, 74, 76, 99, 101, 255] {
            assert_eq!(exited(other, "retry_after=5"), Settlement::Retry);
        }
        let killed = outcome(ExitStatus::from_raw(9), b"");
        assert_eq!(killed.0, Settlement::Retry);
    }

    #[test]
    fn the_last_line_of_the_output_can_name_a_delay() {
        for (output, millis) in [
            ("retry_after=5", 5_000),
            ("working\nretry_after=0.5\n", 500),
            ("retry_after=1\r\nretry_after=2\r\n", 2_000),
        ] {
            let delay = Duration::from_millis(millis);
            assert_eq!(
                exited(75, output),
                Settlement::RetryAfter(delay),
                "{output}"
            );
        }
        for output in [
            "retry_after=5\ndone",
            "retry_after=",
            "retry_after=-1",
            "retry_after=inf",
            "retry_after=NaN",
            "retry_after=soon",
        ] {
            assert_eq!(exited(75, output), Settlement::Retry, "{output}");
        }
    }

    #[tokio::test]
    async fn of_a_long_output_the_end_is_kept() {
        let output = [vec![b'x'; 100_000], b"\nretry_after=3\n".to_vec()].concat();
        let kept = Mutex::default();
        keep_end_of(&*output, &kept).await;
        let kept: Vec<u8> = kept.into_inner().unwrap().into();
        assert_eq!(kept.len(), KEPT);
        assert_eq!(asked_delay(&kept), Some(Duration::from_secs(3)));
    }
}
