//! Clients that disconnected for a memory dump and come back at once. Until then the process counts as attended, and the log
//! drops no output that such a client has not seen: a process that writes more waits. A client that stays away, as in a
//! fork, is forgotten after a while.

use std::time::Duration;

/// Counted in time in which the sandbox ran.
const PAUSE_MAX: Duration = Duration::from_secs(20);
const PAUSES_MAX: usize = 64;

#[derive(Default)]
pub struct Pauses(Vec<Pause>);

struct Pause {
    client: String,
    /// Output from here on must be retained; absent for a client that had lost output before.
    hold: Option<u64>,
    left: Duration,
}

impl Pauses {
    pub fn begin(&mut self, client: &str, hold: Option<u64>) {
        self.end(client);
        if self.0.len() < PAUSES_MAX {
            self.0.push(Pause { client: client.to_string(), hold, left: PAUSE_MAX });
        }
    }

    pub fn end(&mut self, client: &str) {
        self.0.retain(|it| it.client != client);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// The earliest output that must be retained.
    pub fn hold(&self) -> Option<u64> {
        self.0.iter().filter_map(|it| it.hold).min()
    }

    pub fn pass(&mut self, time: Duration) {
        for pause in &mut self.0 {
            pause.left = pause.left.saturating_sub(time);
        }
        self.0.retain(|it| it.left > Duration::from_secs(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_hold_the_earliest_output_and_run_out() {
        let mut pauses = Pauses::default();
        pauses.begin("a", Some(10));
        pauses.begin("b", Some(5));
        pauses.begin("c", None);
        assert_eq!(pauses.hold(), Some(5));
        pauses.end("b");
        pauses.begin("a", Some(12));
        assert_eq!(pauses.hold(), Some(12));
        pauses.pass(PAUSE_MAX - Duration::from_secs(1));
        assert!(pauses.any());
        pauses.pass(Duration::from_secs(1));
        assert!(!pauses.any() && pauses.hold().is_none());
    }
}
