//! Replacement in a stream. Only bytes that may be the start of a pattern are held back, so that an event of a stream is passed on at once.

use crate::search::{Cursor, Matcher, FINDERS_MAX};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Bytes that one step of a stream puts out: a long value in place of many placeholders must not fill the memory.
pub const STEP_BYTES_MAX: usize = 128 * 1024;

/// A replacement under way in a stream: `push`, then `pull` until there is nothing, at last `finish` and `pull` again.
pub struct Replacing {
    matcher: Arc<Matcher>,
    /// What is not put out yet; searched up to `cursor.at`.
    data: Bytes,
    cursor: Cursor,
    /// Whether `data` may hold more matches than were taken out.
    pending: bool,
    last: bool,
    used: Vec<u32>,
    grown: i64,
}

impl Replacing {
    pub fn new(matcher: Arc<Matcher>) -> Self {
        Replacing {
            matcher,
            data: Bytes::new(),
            cursor: Cursor::default(),
            pending: false,
            last: false,
            used: Vec::new(),
            grown: 0,
        }
    }

    pub fn push(&mut self, chunk: Bytes) {
        if self.data.is_empty() {
            self.data = chunk;
        } else {
            let mut joined = BytesMut::with_capacity(self.data.len() + chunk.len());
            joined.extend_from_slice(&self.data);
            joined.extend_from_slice(&chunk);
            self.data = joined.freeze();
        }
        self.pending = true;
    }

    pub fn finish(&mut self) {
        self.last = true;
        self.pending = true;
    }

    /// The numbers of the patterns that were replaced since the last call, each once.
    pub fn take_used(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.used)
    }

    /// By how many bytes the stream has grown.
    pub fn grown(&self) -> i64 {
        self.grown
    }

    pub fn pull(&mut self) -> Option<Bytes> {
        if !self.pending {
            return None;
        }
        let mut out = Vec::new();
        let mut from = 0;
        let mut hits = [0; FINDERS_MAX];
        loop {
            let found = match self.matcher.next(&mut self.cursor, &self.data, &mut hits) {
                Some(found) => found,
                None => match self.cursor.best.filter(|_| self.last) {
                    Some(best) => self.matcher.restart(&mut self.cursor, best),
                    None => break,
                },
            };
            out.extend_from_slice(&self.data[from..found.start]);
            let replacement = self.matcher.replacement(&found);
            out.extend_from_slice(replacement);
            self.grown += replacement.len() as i64 - (found.end - found.start) as i64;
            if !self.used.contains(&found.pattern) {
                self.used.push(found.pattern);
            }
            from = found.end;
            if out.len() >= STEP_BYTES_MAX {
                self.advance(from);
                return Some(out.into());
            }
        }
        self.pending = false;
        let until = if self.last { self.data.len() } else { self.matcher.held_from(&self.cursor) };
        let put = if from == 0 && out.is_empty() {
            self.data.slice(..until)
        } else {
            out.extend_from_slice(&self.data[from..until]);
            out.into()
        };
        self.advance(until);
        (!put.is_empty()).then_some(put)
    }

    fn advance(&mut self, by: usize) {
        self.data = self.data.slice(by..);
        // What is held is short; a view of it would keep a whole chunk alive.
        if !self.pending {
            self.data = Bytes::copy_from_slice(&self.data);
        }
        if self.last && !self.pending {
            self.cursor = Cursor::default();
            return;
        }
        self.cursor.at -= by;
        if let Some(best) = &mut self.cursor.best {
            best.start -= by;
            best.end -= by;
        }
    }
}
