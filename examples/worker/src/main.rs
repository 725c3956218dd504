//! See the library of this package.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use worker::{Cli, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "cannot start: {error}");
            return ExitCode::from(1);
        }
    };
    let has_run = runtime.block_on(run(cli));
    runtime.shutdown_background();
    ExitCode::from(u8::from(!has_run))
}
