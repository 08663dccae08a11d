//! One of the two directions of a relayed connection.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use sys::poll::{self, POLLIN, POLLOUT};

/// How often one direction of a connection is served before the other has its chance.
const READS_IN_A_ROW: usize = 16;

/// Bytes on their way from one side to the other.
pub struct Direction<'a> {
    from: &'a UnixStream,
    to: &'a UnixStream,
    /// Read, and not taken yet.
    pending: Vec<u8>,
    /// The sender has ended, or the receiver has closed.
    pub ended: bool,
}

impl<'a> Direction<'a> {
    pub fn new(from: &'a UnixStream, to: &'a UnixStream) -> Direction<'a> {
        Direction { from, to, pending: Vec::new(), ended: false }
    }

    pub fn reads(&self) -> i16 {
        match !self.ended && self.pending.is_empty() {
            true => POLLIN,
            false => 0,
        }
    }

    pub fn writes(&self) -> i16 {
        match self.pending.is_empty() {
            true => 0,
            false => POLLOUT,
        }
    }

    /// Moves the available bytes without waiting. Bytes that the receiver does not take stay pending and stop further reads.
    pub fn carry(&mut self, buffer: &mut [u8]) {
        if !self.pending.is_empty() {
            let pending = std::mem::take(&mut self.pending);
            self.give(&pending);
        }
        for _ in 0..READS_IN_A_ROW {
            if self.reads() == 0 {
                return;
            }
            let mut from = self.from;
            match from.read(buffer) {
                Ok(0) => self.end(),
                Ok(count) => {
                    self.give(&buffer[..count]);
                    if count < buffer.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.end(),
            }
        }
    }

    fn give(&mut self, bytes: &[u8]) {
        let mut taken = 0;
        while taken < bytes.len() {
            let mut to = self.to;
            match to.write(&bytes[taken..]) {
                Ok(count) => taken += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.pending = bytes[taken..].to_vec();
                    return;
                }
                // The other direction continues.
                Err(_) => return self.end(),
            }
        }
    }

    fn end(&mut self) {
        self.ended = true;
        let _ = self.to.shutdown(Shutdown::Write);
    }

    /// Delivers the bytes that the sender sent before it closed, until the receiver has them all or closes.
    pub fn deliver(&mut self, buffer: &mut [u8], limit: Option<Duration>) {
        let until = limit.map(|limit| Instant::now() + limit);
        loop {
            self.carry(buffer);
            let remaining = until.map(|until| until.saturating_duration_since(Instant::now()));
            if self.ended || remaining.map_or(false, |remaining| remaining.is_zero()) {
                return;
            }
            // A sender that has closed never keeps a read waiting.
            if !self.pending.is_empty() {
                poll::wait([(self.to, POLLOUT)], remaining);
            }
        }
    }
}
