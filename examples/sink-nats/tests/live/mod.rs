//! What the conformance suites share: servers, a proxy before each, and plain requests past
//! whatever is under test.
#![allow(dead_code, reason = "each suite uses a part")]

pub(crate) mod client;
pub(crate) mod proxy;
#[path = "../it/support/server.rs"]
#[allow(
    unused_imports,
    unused_macros,
    reason = "shared with the tests in `it`"
)]
pub(crate) mod server;
pub(crate) mod servers;
pub(crate) mod wire;
