//! The wire of docs/internals/guest-protocol.md: JSON lines, frames, requests and faults.

pub mod bytes;
pub mod fault;
pub mod frame;
pub mod request;
