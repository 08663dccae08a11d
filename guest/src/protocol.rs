//! The wire of docs/guest-protocol.md: frames, requests and faults.

pub mod fault;
pub mod frame;
pub mod request;
