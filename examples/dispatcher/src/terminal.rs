//! Words for people and programs, where a stream that nobody reads is no reason to fail.

use std::fmt::Display;
use std::io::{self, Write as _};

use crate::run::{Exit, could_not_start};

/// Writes to standard output. A reader that has gone away has seen enough.
pub fn print(text: &dyn Display) -> Exit {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            could_not_start(&format!("cannot write to standard output: {error}"))
        }
        _ => Exit::Done,
    }
}

/// Writes a line to standard error, if anybody reads it.
pub fn tell(text: &dyn Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
