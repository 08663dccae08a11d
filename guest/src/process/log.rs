//! The output log of a process: both streams in one order, with absolute byte offsets.
//!
//! Each stream retains its own last bytes, so a chatty stdout does not push out an important line of stderr. Dropped bytes
//! leave a gap: a reader continues at the next retained byte.

mod retained;

use retained::Retained;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stream {
    Stdout = 0,
    Stderr = 1,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Retention {
    /// Drops the oldest bytes.
    Tail,
    /// Drops only acknowledged bytes; the reader of the process asks `room` first.
    Lossless,
}

pub struct Log {
    streams: [Retained; 2],
    end: u64,
    keep: Retention,
    keep_bytes: usize,
    /// A tail drops nothing from this offset on, and takes no more than it can retain.
    hold: Option<u64>,
}

impl Log {
    pub fn new(keep: Retention, keep_bytes: usize) -> Log {
        Log { streams: Default::default(), end: 0, keep, keep_bytes, hold: None }
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    /// Retains everything from this offset on, as long as callers respect `room`; `None` ends that.
    pub fn hold(&mut self, offset: Option<u64>) {
        self.hold = offset;
        self.drop_excess();
    }

    /// Whether the output from this offset on fills a tail: a reader at this offset then holds the process back.
    pub fn fills(&self, offset: u64) -> bool {
        self.keep == Retention::Tail && self.end.saturating_sub(offset) >= self.keep_bytes as u64
    }

    /// Whether a tail takes no more output.
    pub fn is_full(&self) -> bool {
        self.hold.map_or(false, |hold| self.fills(hold))
    }

    pub fn keep_bytes(&self) -> usize {
        self.keep_bytes
    }

    /// Whether a reader at this offset has lost nothing yet and `hold` can retain later output.
    pub fn can_hold(&self, cursor: u64) -> bool {
        self.keep == Retention::Tail && self.end.saturating_sub(cursor) <= self.keep_bytes as u64
    }

    /// Retained bytes of both streams.
    pub fn bytes(&self) -> usize {
        self.streams[0].bytes() + self.streams[1].bytes()
    }

    /// Memory of the log: its bytes and their positions.
    pub fn memory(&self) -> usize {
        self.streams[0].memory() + self.streams[1].memory()
    }

    /// Whether no output waits for an acknowledgement.
    pub fn settled(&self) -> bool {
        self.keep == Retention::Tail || self.streams.iter().all(|kept| kept.bytes() == 0)
    }

    pub fn truncated(&self) -> bool {
        self.streams[0].dropped() || self.streams[1].dropped()
    }

    /// How many bytes of a stream may be appended now.
    pub fn room(&self, stream: Stream) -> usize {
        match self.keep {
            Retention::Tail => match self.hold {
                // Bytes of the other stream count too: the result may be too small, never too large.
                Some(hold) => self.keep_bytes.saturating_sub(self.end.saturating_sub(hold) as usize),
                None => usize::MAX,
            },
            Retention::Lossless => self.keep_bytes.saturating_sub(self.streams[stream as usize].bytes()),
        }
    }

    pub fn append(&mut self, stream: Stream, data: &[u8]) {
        self.streams[stream as usize].append(self.end, data);
        self.end += data.len() as u64;
        self.drop_excess();
    }

    fn drop_excess(&mut self) {
        if self.keep != Retention::Tail {
            return;
        }
        let hold = self.hold.unwrap_or(u64::MAX);
        for kept in &mut self.streams {
            let excess = kept.bytes().saturating_sub(self.keep_bytes);
            kept.drop_before(hold, excess);
        }
    }

    /// Drops everything before `offset` of a lossless log.
    pub fn acknowledge(&mut self, offset: u64) {
        if self.keep != Retention::Lossless {
            return;
        }
        for kept in &mut self.streams {
            kept.drop_before(offset, usize::MAX);
        }
    }

    /// The next retained bytes at or after `cursor`: their stream and offset, at most `max` of them.
    pub fn read(&self, cursor: u64, max: usize) -> Option<(Stream, u64, &[u8])> {
        let stdout = self.streams[0].runs_from(cursor).next().map(|(offset, data)| (Stream::Stdout, offset, data));
        let stderr = self.streams[1].runs_from(cursor).next().map(|(offset, data)| (Stream::Stderr, offset, data));
        let (stream, offset, data) = match (stdout, stderr) {
            (Some(first), Some(second)) => {
                if first.1 < second.1 {
                    first
                } else {
                    second
                }
            }
            (first, second) => first.or(second)?,
        };
        Some((stream, offset, &data[..data.len().min(max)]))
    }

    /// The next retained bytes of one stream between `cursor` and `end`, at most `max`, joined across the other stream's bytes: the offset
    /// of the first byte, the offset behind the last one, and the bytes.
    pub fn gather(&self, stream: Stream, cursor: u64, end: u64, max: usize) -> Option<(u64, u64, Vec<u8>)> {
        let mut runs = self.streams[stream as usize].runs_from(cursor).take_while(|run| run.0 < end).peekable();
        let first = runs.peek()?.0;
        let (mut reached, mut gathered) = (first, Vec::new());
        for (offset, data) in runs {
            let count = data.len().min(max - gathered.len()).min((end - offset) as usize);
            gathered.extend_from_slice(&data[..count]);
            reached = offset + count as u64;
            if gathered.len() == max {
                break;
            }
        }
        Some((first, reached, gathered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stream::{Stderr, Stdout};

    fn all(log: &Log, mut cursor: u64) -> Vec<(Stream, u64, String)> {
        let mut found = Vec::new();
        while let Some((stream, offset, data)) = log.read(cursor, 1000) {
            found.push((stream, offset, String::from_utf8_lossy(data).into_owned()));
            cursor = offset + data.len() as u64;
        }
        found
    }

    #[test]
    fn both_streams_are_read_in_order() {
        let mut log = Log::new(Retention::Tail, 100);
        log.append(Stdout, b"one ");
        log.append(Stdout, b"two ");
        log.append(Stderr, b"oops ");
        log.append(Stdout, b"three");
        let expected = vec![(Stdout, 0, "one two ".into()), (Stderr, 8, "oops ".into()), (Stdout, 13, "three".into())];
        assert_eq!(all(&log, 0), expected);
        assert_eq!(all(&log, 10), vec![(Stderr, 10, "ps ".into()), (Stdout, 13, "three".into())]);
        assert_eq!(all(&log, 18), vec![]);
        assert_eq!(all(&log, 1 << 40), vec![]);
        assert!(!log.truncated());
    }

    #[test]
    fn a_tail_keeps_the_last_bytes_of_each_stream() {
        let mut log = Log::new(Retention::Tail, 4);
        log.append(Stderr, b"err");
        log.append(Stdout, b"0123456789");
        assert_eq!(all(&log, 0), vec![(Stderr, 0, "err".into()), (Stdout, 9, "6789".into())]);
        log.append(Stdout, b"ab");
        assert_eq!(all(&log, 0), vec![(Stderr, 0, "err".into()), (Stdout, 11, "89ab".into())]);
        assert!(log.truncated());
        assert_eq!(log.end(), 15);
        assert_eq!(log.streams[0].bytes() + log.streams[1].bytes(), 7);
    }

    #[test]
    fn a_lossless_log_waits_for_acknowledgement() {
        let mut log = Log::new(Retention::Lossless, 8);
        log.append(Stdout, b"12345678");
        assert_eq!((log.room(Stdout), log.room(Stderr)), (0, 8));
        log.acknowledge(3);
        assert_eq!(log.room(Stdout), 3);
        assert_eq!(all(&log, 0), vec![(Stdout, 3, "45678".into())]);
        log.acknowledge(1 << 50);
        assert_eq!((log.room(Stdout), log.settled(), log.memory()), (8, true, 0));
        log.append(Stdout, b"9");
        assert_eq!(all(&log, 0), vec![(Stdout, 8, "9".into())]);
    }

    #[test]
    fn a_held_tail_drops_only_what_lies_before() {
        let mut log = Log::new(Retention::Tail, 4);
        log.append(Stdout, b"0123");
        log.append(Stderr, b"ab");
        assert!(log.can_hold(2) && !log.can_hold(1));
        log.hold(Some(2));
        assert_eq!((log.room(Stdout), log.room(Stderr)), (0, 0));
        log.append(Stdout, b"45");
        assert_eq!(all(&log, 0), vec![(Stdout, 2, "23".into()), (Stderr, 4, "ab".into()), (Stdout, 6, "45".into())]);
        log.append(Stdout, b"6");
        assert_eq!(all(&log, 2)[0], (Stdout, 2, "23".into()));
        log.hold(None);
        assert_eq!(all(&log, 0), vec![(Stdout, 3, "3".into()), (Stderr, 4, "ab".into()), (Stdout, 6, "456".into())]);
        assert_eq!(log.room(Stdout), usize::MAX);
    }

    #[test]
    fn each_stream_keeps_its_bytes_and_their_order_however_finely_they_alternate() {
        const KEEP: usize = 20_000;
        let mut log = Log::new(Retention::Tail, KEEP);
        for _ in 0..KEEP {
            log.append(Stdout, b"o");
            log.append(Stderr, b"ee");
        }
        assert_eq!((log.streams[0].bytes(), log.streams[1].bytes()), (KEEP, KEEP));
        assert_eq!(all(&log, 0)[0], (Stdout, 0, "o".into()));
        let end = log.end();
        assert_eq!(all(&log, end - 4)[..2], [(Stderr, end - 4, "e".into()), (Stdout, end - 3, "o".into())]);
        // Stdout has lost nothing, and stands alone in the first half.
        assert_eq!(all(&log, 30)[..2], [(Stdout, 30, "o".into()), (Stdout, 33, "o".into())]);
        assert!(log.memory() < 7 * KEEP, "{}", log.memory());
    }

    #[test]
    fn a_lossless_log_is_full_by_bytes_alone() {
        let mut log = Log::new(Retention::Lossless, 100_000);
        for _ in 0..99_999 {
            log.append(Stdout, b"o");
            log.append(Stderr, b"e");
        }
        assert_eq!((log.room(Stdout), log.room(Stderr)), (1, 1));
    }

    #[test]
    fn one_stream_is_gathered_across_what_the_other_wrote() {
        let mut log = Log::new(Retention::Tail, 5);
        for data in [b"ab", b"cd", b"ef"] {
            log.append(Stdout, data);
            log.append(Stderr, b"-");
        }
        assert_eq!(log.gather(Stdout, 0, 9, 100), Some((1, 8, b"bcdef".to_vec())));
        assert_eq!(log.gather(Stdout, 0, 9, 2), Some((1, 4, b"bc".to_vec())));
        assert_eq!(log.gather(Stdout, 4, 7, 100), Some((4, 7, b"de".to_vec())));
        assert_eq!(log.gather(Stdout, 8, 9, 100), None);
        assert_eq!(log.gather(Stdout, 5, 6, 100), None);
    }

    #[test]
    fn reading_is_cut_at_max() {
        let mut log = Log::new(Retention::Tail, 100);
        log.append(Stdout, b"abcdef");
        assert_eq!(log.read(1, 2), Some((Stdout, 1, &b"bc"[..])));
    }
}
