//! The output log of a process: both streams in one order, with absolute byte offsets.
//!
//! Each stream keeps its own last bytes, so a chatty stdout does not push out the one line of stderr that matters. What
//! was dropped leaves a gap: a reader goes on at the next byte that is kept.

use std::collections::VecDeque;

const CHUNK_BYTES: usize = 32 * 1024;
/// Bounds what many tiny, alternating writes cost beyond their bytes.
const CHUNKS_MAX: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stream {
    Stdout = 0,
    Stderr = 1,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keep {
    /// Drops the oldest bytes.
    Tail,
    /// Drops only what was acknowledged; the reader of the process asks `room` first.
    Lossless,
}

pub struct Log {
    streams: [Kept; 2],
    end: u64,
    keep: Keep,
    keep_bytes: usize,
    /// A tail drops nothing from here on, and takes no more than it can keep.
    hold: Option<u64>,
}

#[derive(Default)]
struct Kept {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    dropped: bool,
}

/// Bytes `skip..` of `data` are kept; `offset` is where `data[0]` stood in the log.
struct Chunk {
    offset: u64,
    data: Vec<u8>,
    skip: usize,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    fn start(&self) -> u64 {
        self.offset + self.skip as u64
    }
}

impl Kept {
    fn drop_bytes(&mut self, mut count: usize) {
        while count > 0 {
            let chunk = match self.chunks.front_mut() {
                Some(chunk) => chunk,
                None => return,
            };
            self.dropped = true;
            let left = chunk.data.len() - chunk.skip;
            if left > count {
                chunk.skip += count;
                self.bytes -= count;
                return;
            }
            count -= left;
            self.bytes -= left;
            self.chunks.pop_front();
        }
    }

    /// The first kept run of bytes that ends after `cursor`.
    fn at(&self, cursor: u64) -> Option<(u64, &[u8])> {
        let index = self.chunks.partition_point(|chunk| chunk.end() <= cursor);
        let chunk = self.chunks.get(index)?;
        let start = chunk.start().max(cursor);
        Some((start, &chunk.data[(start - chunk.offset) as usize..]))
    }
}

impl Log {
    pub fn new(keep: Keep, keep_bytes: usize) -> Log {
        Log { streams: Default::default(), end: 0, keep, keep_bytes, hold: None }
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    /// Keeps everything from this offset on, as far as `room` was heeded; absent: no longer.
    pub fn hold(&mut self, offset: Option<u64>) {
        self.hold = offset;
        self.drop_excess();
    }

    /// Whether a reader at this place has lost nothing yet and `hold` can keep what is to come.
    pub fn can_hold(&self, cursor: u64) -> bool {
        self.keep == Keep::Tail && self.end.saturating_sub(cursor) <= self.keep_bytes as u64
    }

    /// Bytes held in memory.
    pub fn bytes(&self) -> usize {
        self.streams[0].bytes + self.streams[1].bytes
    }

    /// Whether nothing of it waits for an acknowledgement.
    pub fn settled(&self) -> bool {
        self.keep == Keep::Tail || self.bytes() == 0
    }

    pub fn truncated(&self) -> bool {
        self.streams[0].dropped || self.streams[1].dropped
    }

    /// How many bytes of a stream may be appended now.
    pub fn room(&self, stream: Stream) -> usize {
        let kept = &self.streams[stream as usize];
        match self.keep {
            Keep::Tail => match self.hold {
                Some(_) if kept.chunks.len() >= CHUNKS_MAX => 0,
                // The other stream's bytes count too: less room than there is, never more.
                Some(hold) => self.keep_bytes.saturating_sub(self.end.saturating_sub(hold) as usize),
                None => usize::MAX,
            },
            Keep::Lossless if kept.chunks.len() >= CHUNKS_MAX => 0,
            Keep::Lossless => self.keep_bytes.saturating_sub(kept.bytes),
        }
    }

    pub fn append(&mut self, stream: Stream, data: &[u8]) {
        let end = self.end;
        let kept = &mut self.streams[stream as usize];
        self.end += data.len() as u64;
        kept.bytes += data.len();
        match kept.chunks.back_mut() {
            Some(last) if last.end() == end && last.data.len() + data.len() <= CHUNK_BYTES => {
                last.data.extend_from_slice(data)
            }
            _ => kept.chunks.push_back(Chunk { offset: end, data: data.to_vec(), skip: 0 }),
        }
        self.drop_excess();
    }

    fn drop_excess(&mut self) {
        if self.keep != Keep::Tail {
            return;
        }
        let hold = self.hold.unwrap_or(u64::MAX);
        for kept in &mut self.streams {
            loop {
                let excess = kept.bytes.saturating_sub(self.keep_bytes);
                let first = match kept.chunks.front() {
                    Some(first) if first.start() < hold => first,
                    _ => break,
                };
                let length = (first.end().min(hold) - first.start()) as usize;
                if kept.chunks.len() > CHUNKS_MAX {
                    kept.drop_bytes(length);
                } else if excess > 0 {
                    kept.drop_bytes(length.min(excess));
                } else {
                    break;
                }
            }
        }
    }

    /// Drops everything before `offset` of a lossless log.
    pub fn acknowledge(&mut self, offset: u64) {
        if self.keep != Keep::Lossless {
            return;
        }
        for kept in &mut self.streams {
            while let Some(chunk) = kept.chunks.front() {
                if chunk.start() >= offset {
                    break;
                }
                let count = (chunk.end().min(offset) - chunk.start()) as usize;
                kept.drop_bytes(count);
            }
        }
    }

    /// The next kept bytes at or after `cursor`: their stream and offset, at most `max` of them.
    pub fn read(&self, cursor: u64, max: usize) -> Option<(Stream, u64, &[u8])> {
        let stdout = self.streams[0].at(cursor).map(|(offset, data)| (Stream::Stdout, offset, data));
        let stderr = self.streams[1].at(cursor).map(|(offset, data)| (Stream::Stderr, offset, data));
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
        let mut log = Log::new(Keep::Tail, 100);
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
        let mut log = Log::new(Keep::Tail, 4);
        log.append(Stderr, b"err");
        log.append(Stdout, b"0123456789");
        assert_eq!(all(&log, 0), vec![(Stderr, 0, "err".into()), (Stdout, 9, "6789".into())]);
        log.append(Stdout, b"ab");
        assert_eq!(all(&log, 0), vec![(Stderr, 0, "err".into()), (Stdout, 11, "89ab".into())]);
        assert!(log.truncated());
        assert_eq!(log.end(), 15);
        assert_eq!(log.bytes(), 7);
    }

    #[test]
    fn a_lossless_log_waits_for_acknowledgement() {
        let mut log = Log::new(Keep::Lossless, 8);
        log.append(Stdout, b"12345678");
        assert_eq!((log.room(Stdout), log.room(Stderr)), (0, 8));
        log.acknowledge(3);
        assert_eq!(log.room(Stdout), 3);
        assert_eq!(all(&log, 0), vec![(Stdout, 3, "45678".into())]);
        log.acknowledge(1 << 50);
        assert_eq!((log.room(Stdout), log.bytes()), (8, 0));
        log.append(Stdout, b"9");
        assert_eq!(all(&log, 0), vec![(Stdout, 8, "9".into())]);
    }

    #[test]
    fn a_held_tail_drops_only_what_lies_before() {
        let mut log = Log::new(Keep::Tail, 4);
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
    fn tiny_alternating_writes_stay_bounded() {
        let mut log = Log::new(Keep::Tail, 1 << 20);
        for _ in 0..CHUNKS_MAX * 2 {
            log.append(Stdout, b"o");
            log.append(Stderr, b"e");
        }
        assert_eq!(log.bytes(), CHUNKS_MAX * 2);
        let mut log = Log::new(Keep::Lossless, 1 << 20);
        for _ in 0..CHUNKS_MAX {
            log.append(Stdout, b"o");
            log.append(Stderr, b"e");
        }
        assert_eq!(log.room(Stdout), 0);
    }

    #[test]
    fn reading_is_cut_at_max() {
        let mut log = Log::new(Keep::Tail, 100);
        log.append(Stdout, b"abcdef");
        assert_eq!(log.read(1, 2), Some((Stdout, 1, &b"bc"[..])));
    }
}
