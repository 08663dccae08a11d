//! Lines of the server. They hold values of secrets: what is read is zeroed as soon as it is not needed.

use std::io::{self, Read};
use zeroize::{Zeroize, Zeroizing};

/// All plans of one sandbox: secrets of several stores with 64 KiB each.
pub const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;
const CHUNK_BYTES: usize = 64 * 1024;

pub struct Lines<R> {
    from: R,
    chunk: Zeroizing<Vec<u8>>,
    /// What of the chunk is not taken.
    start: usize,
    end: usize,
}

impl<R: Read> Lines<R> {
    pub fn new(from: R) -> Lines<R> {
        Lines { from, chunk: Zeroizing::new(vec![0; CHUNK_BYTES]), start: 0, end: 0 }
    }

    /// The next line without its end; absent at the end of the input. A last line without an end is not one.
    pub fn read(&mut self) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        let mut line = Zeroizing::new(Vec::new());
        loop {
            let rest = &self.chunk[self.start..self.end];
            let at = memchr::memchr(b'\n', rest);
            push(&mut line, &rest[..at.unwrap_or(rest.len())])?;
            match at {
                Some(at) => {
                    self.start += at + 1;
                    return Ok(Some(line));
                }
                None => self.start = self.end,
            }
            self.chunk[..self.end].zeroize();
            (self.start, self.end) = (0, 0);
            match self.from.read(&mut self.chunk) {
                Ok(0) => return Ok(None),
                Ok(length) => self.end = length,
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                Err(fault) => return Err(fault),
            }
        }
    }
}

/// Grows by a copy that leaves nothing behind.
fn push(line: &mut Zeroizing<Vec<u8>>, bytes: &[u8]) -> io::Result<()> {
    let length = line.len() + bytes.len();
    if length > LINE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    if length > line.capacity() {
        let mut larger = Zeroizing::new(Vec::with_capacity(length.next_power_of_two()));
        larger.extend_from_slice(line);
        *line = larger;
    }
    line.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let (taken, rest) = self.0.split_at(self.1.min(self.0.len()));
            into[..taken.len()].copy_from_slice(taken);
            self.0 = rest;
            Ok(taken.len())
        }
    }

    #[test]
    fn lines_come_whole_however_they_are_split() {
        for step in 1..9 {
            let mut lines = Lines::new(Dribble(b"one\n\ntwo two\nrest", step));
            let mut next = || lines.read().unwrap().map(|line| String::from_utf8(line.to_vec()).unwrap());
            assert_eq!(next().as_deref(), Some("one"));
            assert_eq!(next().as_deref(), Some(""));
            assert_eq!(next().as_deref(), Some("two two"));
            assert_eq!(next(), None);
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        assert!(Lines::new(io::repeat(b'x')).read().is_err());
    }
}
