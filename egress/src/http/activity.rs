//! When a connection is idle for too long.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;

/// A head that has begun must be complete after this time.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Without a request under way.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// With one under way, of which no byte moves: events and WebSockets may be silent for long.
pub const STREAM_TIMEOUT: Duration = Duration::from_secs(3600);

pub struct Activity {
    start: Instant,
    open: AtomicUsize,
    /// Milliseconds after `start`.
    last: AtomicU64,
    /// When the head that is being read began, plus one; 0: none is.
    head: AtomicU64,
}

impl Default for Activity {
    fn default() -> Self {
        Activity { start: Instant::now(), open: AtomicUsize::new(0), last: AtomicU64::new(0), head: AtomicU64::new(0) }
    }
}

impl Activity {
    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    pub fn touch(&self) {
        self.last.store(self.now(), Relaxed);
    }

    pub fn begin(&self) {
        self.open.fetch_add(1, Relaxed);
        self.touch();
    }

    pub fn end(&self) {
        self.touch();
        self.open.fetch_sub(1, Relaxed);
    }

    pub fn head_begun(&self) {
        let _ = self.head.compare_exchange(0, self.now() + 1, Relaxed, Relaxed);
    }

    pub fn head_done(&self) {
        self.head.store(0, Relaxed);
        self.touch();
    }

    fn deadline(&self) -> Instant {
        let after = |base: u64, limit: Duration| self.start + Duration::from_millis(base) + limit;
        match self.head.load(Relaxed) {
            0 if self.open.load(Relaxed) == 0 => after(self.last.load(Relaxed), IDLE_TIMEOUT),
            0 => after(self.last.load(Relaxed), STREAM_TIMEOUT),
            head => after(head - 1, HEAD_TIMEOUT),
        }
    }

    /// Resolves when the connection has been idle for too long. States change while it sleeps, so it looks at least once a `HEAD_TIMEOUT`.
    pub async fn expired(&self) {
        loop {
            let deadline = self.deadline();
            let now = Instant::now();
            if deadline <= now {
                return;
            }
            tokio::time::sleep_until(deadline.min(now + HEAD_TIMEOUT)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_depends_on_what_is_under_way() {
        let activity = Activity::default();
        let from_start = || activity.deadline() - activity.start;
        assert_eq!(from_start(), IDLE_TIMEOUT);
        activity.head_begun();
        assert!(from_start() >= HEAD_TIMEOUT && from_start() < IDLE_TIMEOUT);
        activity.head_done();
        activity.begin();
        assert!(from_start() >= STREAM_TIMEOUT);
        activity.end();
        assert!(from_start() < STREAM_TIMEOUT);
    }
}
