//! What is still read of a process's output after its leader has ended.

use crate::process::log::Stream;
use std::fs::File;
use std::time::Duration;

/// After the leader's end, other processes may hold its pipes open. Its output is complete after this silence.
const DRAIN_IDLE: Duration = Duration::from_millis(250);
/// Bound of the wait for that silence.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// Bound of the reads past a full lossless log after the leader's end: the size of a pipe.
const DRAIN_BYTES_MAX: usize = 1 << 20;

/// The time after the leader's end in which its last output is read.
pub struct Drain {
    left: Duration,
    idle_left: Duration,
    bytes: usize,
    /// Bytes in the pipes at the leader's end; all of them are read, however long that takes.
    owed: usize,
    /// Whether the last look at the outputs found nothing.
    pub quiet: bool,
}

impl Drain {
    pub fn new(outputs: &[(Stream, File)]) -> Drain {
        let owed = outputs.iter().map(|(_, output)| sys::unread_bytes(output)).sum();
        Drain { left: DRAIN_MAX, idle_left: DRAIN_IDLE, bytes: 0, owed, quiet: false }
    }

    pub fn read(&mut self, count: usize) {
        self.bytes += count;
        self.idle_left = DRAIN_IDLE;
    }

    pub fn pass(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
        self.idle_left = self.idle_left.saturating_sub(time);
    }

    pub fn left(&self) -> Duration {
        self.idle_left.min(self.left)
    }

    pub fn over(&self) -> bool {
        let none = Duration::from_secs(0);
        if self.quiet && self.idle_left == none {
            return true;
        }
        self.bytes >= self.owed && (self.left == none || self.bytes - self.owed >= DRAIN_BYTES_MAX)
    }
}
