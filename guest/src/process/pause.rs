//! Paused clients: those that disconnected for a memory dump and come back at once, and those whose connection was cut without a farewell.
//! Until such a client is back, the process counts as attended and the log drops no output that the client has not seen: a process that
//! writes more waits. A client that stays away, as in a fork, is forgotten after a while.

use std::time::Duration;

/// Counted in time in which the sandbox ran.
const PAUSE_MAX: Duration = Duration::from_secs(30);
const PAUSES_MAX: usize = 64;

#[derive(Default)]
pub struct Pauses(Vec<Pause>);

struct Pause {
    client: String,
    /// Output from here on must be retained; absent for a client that had lost output before.
    hold: Option<u64>,
    left: Duration,
    /// The client has not said that it comes back: another client may replace it.
    is_cut: bool,
}

impl Pauses {
    pub fn begin(&mut self, client: &str, hold: Option<u64>) {
        self.push(Pause { client: client.to_string(), hold, left: PAUSE_MAX, is_cut: false });
    }

    /// The connection of a client ended, and the client did not leave.
    pub fn cut(&mut self, client: &str, hold: u64) {
        self.push(Pause { client: client.to_string(), hold: Some(hold), left: PAUSE_MAX, is_cut: true });
    }

    /// A client attaches at an offset. An unknown client replaces the cut one that had come furthest up to this offset: it may be the same
    /// client of another server.
    pub fn join(&mut self, client: Option<&str>, offset: u64) {
        if self.0.iter().any(|it| Some(it.client.as_str()) == client) {
            return;
        }
        let replaced = self.0.iter().filter(|it| it.is_cut && it.hold <= Some(offset)).max_by_key(|it| it.hold);
        if let Some(client) = replaced.map(|it| it.client.clone()) {
            self.end(&client);
        }
    }

    fn push(&mut self, pause: Pause) {
        self.end(&pause.client);
        if self.0.len() < PAUSES_MAX {
            self.0.push(pause);
        }
    }

    pub fn end(&mut self, client: &str) {
        self.0.retain(|it| it.client != client);
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

    #[test]
    fn an_unknown_client_comes_in_the_place_of_one_that_was_cut_before_its_offset() {
        let mut pauses = Pauses::default();
        pauses.begin("paused", Some(1));
        pauses.cut("a", 10);
        pauses.cut("b", 20);
        pauses.join(Some("a"), 30);
        pauses.join(Some("new"), 5);
        assert_eq!(pauses.0.len(), 3);
        pauses.join(Some("newer"), 15);
        pauses.join(None, 15);
        let left: Vec<&str> = pauses.0.iter().map(|it| it.client.as_str()).collect();
        assert_eq!(left, ["paused", "b"]);
    }
}
