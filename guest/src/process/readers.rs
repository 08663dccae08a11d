//! Readers whose offset in the output holds the process back: as with a pipe, a process that writes faster than they read waits. Attached
//! clients are readers. For a while after the start, so is the client that started the process and is about to attach.

use std::time::Duration;

#[derive(Default)]
pub struct Readers {
    attached: Vec<Reader>,
    ids: u64,
    /// How long the first reader is still expected, in time in which the sandbox ran.
    expected: Option<Duration>,
}

struct Reader {
    id: ReaderId,
    /// Output from here on must be retained.
    hold: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReaderId(u64);

impl Readers {
    /// Holds output back until the first reader comes, at most for this time.
    pub fn expect(&mut self, time: Duration) {
        self.expected = Some(time).filter(|&time| time > Duration::from_secs(0));
    }

    pub fn expects(&self) -> bool {
        self.expected.is_some()
    }

    pub fn pass(&mut self, time: Duration) {
        if let Some(left) = self.expected {
            self.expect(left.saturating_sub(time));
        }
    }

    pub fn add(&mut self, hold: u64) -> ReaderId {
        self.expected = None;
        self.ids += 1;
        let id = ReaderId(self.ids);
        self.attached.push(Reader { id, hold });
        id
    }

    pub fn remove(&mut self, id: ReaderId) {
        self.attached.retain(|it| it.id != id);
    }

    pub fn advance(&mut self, id: ReaderId, hold: u64) {
        if let Some(reader) = self.attached.iter_mut().find(|it| it.id == id) {
            reader.hold = hold;
        }
    }

    /// The offset from which on this reader holds output.
    pub fn hold_of(&self, id: ReaderId) -> Option<u64> {
        self.attached.iter().find(|it| it.id == id).map(|it| it.hold)
    }

    /// The earliest output that must be retained: the slowest reader counts.
    pub fn hold(&self) -> Option<u64> {
        let expected = self.expected.map(|_| 0);
        self.attached.iter().map(|it| it.hold).chain(expected).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_reader_counts() {
        let mut readers = Readers::default();
        assert_eq!(readers.hold(), None);
        let (first, second) = (readers.add(10), readers.add(5));
        assert_eq!(readers.hold(), Some(5));
        readers.advance(second, 20);
        assert_eq!(readers.hold(), Some(10));
        assert_eq!((readers.hold_of(first), readers.hold_of(second)), (Some(10), Some(20)));
        readers.remove(first);
        assert_eq!(readers.hold(), Some(20));
        readers.advance(first, 1);
        readers.remove(second);
        assert_eq!(readers.hold(), None);
    }

    #[test]
    fn the_first_reader_is_expected_for_a_while() {
        let mut readers = Readers::default();
        readers.expect(Duration::from_secs(10));
        assert_eq!(readers.hold(), Some(0));
        readers.pass(Duration::from_secs(9));
        assert!(readers.expects());
        readers.pass(Duration::from_secs(1));
        assert!(!readers.expects() && readers.hold().is_none());
        readers.expect(Duration::from_secs(10));
        let reader = readers.add(7);
        assert_eq!((readers.hold(), readers.expects()), (Some(7), false));
        readers.remove(reader);
        assert_eq!(readers.hold(), None);
    }
}
