//! poll(2).

use std::os::raw::{c_int, c_ulong};
use std::os::unix::io::AsRawFd;
use std::time::Duration;

extern "C" {
    fn poll(entries: *mut Entry, count: c_ulong, timeout_ms: c_int) -> c_int;
}

pub const IN: i16 = 0x1;
pub const OUT: i16 = 0x4;
/// The other side has closed. poll(2) reports it for all requested events.
pub const GONE: i16 = 0x8 | 0x10;

#[repr(C)]
struct Entry {
    fd: c_int,
    wanted: i16,
    found: i16,
}

/// Waits until something is found on one of the streams or descriptors, a signal comes, or the time is over. A stream of which nothing is
/// wanted is not looked at.
pub fn wait<S: AsRawFd, const N: usize>(streams: [(&S, i16); N], timeout: Option<Duration>) -> [i16; N] {
    let mut entries = streams.map(|(stream, wanted)| Entry {
        fd: if wanted == 0 { -1 } else { stream.as_raw_fd() },
        wanted,
        found: 0,
    });
    // Rounded up, so that the rest of a timeout is never a busy wait.
    let timeout_ms = timeout.map_or(-1, |timeout| ((timeout.as_nanos() + 999_999) / 1_000_000) as c_int);
    if unsafe { poll(entries.as_mut_ptr(), N as c_ulong, timeout_ms) } < 0 {
        return [0; N];
    }
    entries.map(|entry| entry.found)
}
