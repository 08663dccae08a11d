//! Time in which the sandbox ran. The kernel's clocks go on, jump or restart while a sandbox is frozen or restored, so nothing
//! here compares clock values across a possible freeze: time is the sum of short steps, each counted with at most its
//! expected length.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static RUN_MICROSECONDS: AtomicU64 = AtomicU64::new(0);

/// A step on a busy machine counts with up to this much more than its expected length.
const SLACK: Duration = Duration::from_millis(250);

/// The time since the start that `pass` has counted: exact to one step of the main thread.
pub fn now() -> Duration {
    Duration::from_micros(RUN_MICROSECONDS.load(Ordering::Relaxed))
}

pub fn pass(time: Duration) {
    RUN_MICROSECONDS.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
}

/// Measures steps one after the other.
pub struct Stopwatch(Instant);

impl Stopwatch {
    pub fn new() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// The time since the last call, at most `expected` and a little; a clock that went back counts as nothing.
    pub fn next(&mut self, expected: Duration) -> Duration {
        let now = Instant::now();
        let passed = now.checked_duration_since(self.0).unwrap_or_default();
        self.0 = now;
        passed.min(expected + SLACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_counts_no_longer_than_expected_and_never_backwards() {
        let mut stopwatch =
            Stopwatch(Instant::now().checked_sub(Duration::from_secs(3600)).unwrap_or_else(Instant::now));
        assert!(stopwatch.next(Duration::from_secs(1)) <= Duration::from_secs(1) + SLACK);
        let mut stopwatch = Stopwatch(Instant::now() + Duration::from_secs(3600));
        assert_eq!(stopwatch.next(Duration::from_secs(1)), Duration::from_secs(0));
        assert!(stopwatch.next(Duration::from_secs(1)) < Duration::from_secs(1));
    }
}
