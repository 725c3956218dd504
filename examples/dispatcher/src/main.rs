//! See the library of this package.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use dispatcher::{Cli, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "cannot start: {error}");
            return ExitCode::from(1);
        }
    };
    let exit = runtime.block_on(run(cli));
    // A read of standard input that nobody waits for any more must not keep the
    // process.
    runtime.shutdown_background();
    exit.into()
}
