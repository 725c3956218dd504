//! Bytes as text.

use base64::Engine as _;
use base64::engine::GeneralPurposeConfig;
use sha2::{Digest as _, Sha256};

/// The engine for what a machine can do beyond the language's own instructions.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static BASE64: std::sync::LazyLock<base64::engine::Simd> =
    std::sync::LazyLock::new(|| base64::engine::Simd::standard(GeneralPurposeConfig::new()));

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static BASE64: base64::engine::GeneralPurpose = base64::engine::general_purpose::STANDARD;

/// Appends bytes as base64 of the standard alphabet, padded.
pub(crate) fn push_base64(out: &mut String, bytes: &[u8]) {
    BASE64.encode_string(bytes, out);
}

/// The SHA-256 of bytes as 64 lower-case hex digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    let mut digits = [0; 64];
    hex::encode_to_slice(Sha256::digest(bytes), &mut digits)
        .expect("32 bytes are written as 64 digits");
    std::str::from_utf8(&digits)
        .expect("hex digits are ASCII")
        .to_owned()
}
