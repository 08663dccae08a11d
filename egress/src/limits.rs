//! Bounds on what sandboxes make this process hold. `start` may set those of [`Limits`].

use serde::Deserialize;
use std::time::Duration;

/// Bytes read of a connection before it is decided, and of the head of a proxy request.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// A client that says nothing for this long may wait for the server to speak first.
pub const SILENCE: Duration = Duration::from_millis(300);
/// All attempts to reach a host together.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a refused client has to read why.
pub const LINGER: Duration = Duration::from_secs(2);
pub const LINGER_BYTES_MAX: usize = 64 * 1024;
/// What one connection was let through to and is asked about again when the plan changes.
pub const HELD_MAX: usize = 64;

#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub connections_max: usize,
    pub connections_per_sandbox_max: usize,
    /// Connections of one sandbox whose first bytes are awaited.
    pub deciding_per_sandbox_max: usize,
    pub sniff_timeout_ms: u64,
    pub tunnel_idle_ms: u64,
    pub dns_in_flight_max: usize,
    pub dns_in_flight_per_sandbox_max: usize,
    /// Names that are not in the cache: so many at once, and so many a second.
    pub dns_names_burst: u32,
    pub dns_names_per_second: u32,
    pub pins_per_sandbox_max: usize,
    pub entries_per_second_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 20_000,
            connections_per_sandbox_max: 1024,
            deciding_per_sandbox_max: 256,
            sniff_timeout_ms: 10_000,
            tunnel_idle_ms: 3_600_000,
            dns_in_flight_max: 1024,
            dns_in_flight_per_sandbox_max: 64,
            dns_names_burst: 300,
            dns_names_per_second: 10,
            pins_per_sandbox_max: 4096,
            entries_per_second_max: 100,
        }
    }
}
