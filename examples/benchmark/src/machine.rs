//! What kind of machine this is, in words that name none.

use std::fmt;

/// What the numbers depend on most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    cores: usize,
    sha: bool,
}

impl Machine {
    /// The machine that this runs on.
    pub(crate) fn this() -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            sha: sha_instructions(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn sha_instructions() -> bool {
    std::arch::is_x86_feature_detected!("sha")
}

#[cfg(target_arch = "aarch64")]
fn sha_instructions() -> bool {
    std::arch::is_aarch64_feature_detected!("sha2")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn sha_instructions() -> bool {
    false
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cores, {}, {}, {} instructions for SHA-256",
            self.cores,
            std::env::consts::ARCH,
            std::env::consts::OS,
            if self.sha { "with" } else { "without" }
        )
    }
}
