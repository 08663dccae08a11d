//! The rate of entries of one sandbox. What is beyond it is counted and told once a second.

use crate::model::Entry;
use crate::output::{Output, Report};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Refused names that are told once in a minute.
const NAMES_MAX: usize = 1024;
const MINUTE: Duration = Duration::from_secs(60);

pub struct EntryRate {
    per_second: u32,
    second: Instant,
    in_second: u32,
    dropped: u64,
    sent: u64,
    received: u64,
    minute: Instant,
    names: HashSet<String>,
}

impl EntryRate {
    pub fn new(per_second: u32) -> EntryRate {
        let now = Instant::now();
        let (second, minute) = (now, now);
        EntryRate { per_second, second, in_second: 0, dropped: 0, sent: 0, received: 0, minute, names: HashSet::new() }
    }

    pub fn report(&mut self, entry: Entry, output: &Output, now: Instant) {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            self.second = now;
            self.in_second = 0;
        }
        let (sent, received) = (entry.sent, entry.received);
        if self.in_second < self.per_second && output.report(&Report::Entry(entry)) {
            self.in_second += 1;
            return;
        }
        self.dropped += 1;
        self.sent = self.sent.saturating_add(sent);
        self.received = self.received.saturating_add(received);
    }

    /// Tells what was dropped, if there is room; else later.
    pub fn tell_dropped(&mut self, sandbox: &str, output: &Output) {
        if self.dropped == 0 {
            return;
        }
        let sandbox = sandbox.to_owned();
        let (count, sent, received) = (self.dropped, self.sent, self.received);
        if output.report(&Report::EntriesDropped { sandbox, count, sent, received }) {
            (self.dropped, self.sent, self.received) = (0, 0, 0);
        }
    }

    /// Whether this name was not told in this minute.
    pub fn first_in_minute(&mut self, name: &str, now: Instant) -> bool {
        if now.duration_since(self.minute) >= MINUTE {
            self.minute = now;
            self.names.clear();
        }
        self.names.len() < NAMES_MAX && self.names.insert(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Decision, Protocol};

    #[tokio::test]
    async fn entries_beyond_the_rate_are_counted_with_their_bytes() {
        let output = Output::start(std::io::sink());
        let mut rate = EntryRate::new(3);
        let now = rate.second;
        for _ in 0..10 {
            let entry = Entry { sent: 5, received: 7, ..Entry::new(Decision::Denied, Protocol::Tcp, 22) };
            rate.report(entry, &output, now);
        }
        assert_eq!((rate.in_second, rate.dropped, rate.sent, rate.received), (3, 7, 35, 49));
        rate.tell_dropped("a", &output);
        assert_eq!((rate.dropped, rate.sent, rate.received), (0, 0, 0));
        rate.report(Entry::new(Decision::Denied, Protocol::Tcp, 22), &output, now + Duration::from_secs(1));
        assert_eq!(rate.in_second, 1);
    }

    #[test]
    fn a_refused_name_is_told_once_in_a_minute() {
        let mut rate = EntryRate::new(1);
        let now = Instant::now();
        assert!(rate.first_in_minute("a.example", now));
        assert!(!rate.first_in_minute("a.example", now));
        assert!(rate.first_in_minute("a.example", now + MINUTE));
    }
}
