//! An archive in frames of `data`, out of the sandbox and into it.

use crate::files::{about, CHUNK_BYTES};
use crate::protocol::bytes::printable;
use crate::protocol::fault::{Fault, Outcome};
use crate::protocol::frame::{self, kind};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

/// The archive in frames of `data`.
pub struct Outgoing<'a, W: Write> {
    writer: &'a mut W,
    /// A header of a frame, and what it will hold.
    buffer: Vec<u8>,
    sent: u64,
    bytes_max: Option<u64>,
}

impl<'a, W: Write> Outgoing<'a, W> {
    pub fn new(writer: &'a mut W, bytes_max: Option<u64>) -> Outgoing<'a, W> {
        Outgoing { writer, buffer: vec![0; frame::HEADER_BYTES], sent: 0, bytes_max }
    }

    /// The end of the archive.
    pub fn end(mut self) -> Outcome<()> {
        let mut end = Vec::new();
        tar::put_end(&mut end);
        self.put(&end)?;
        self.flush()?;
        Ok(frame::write_frame(self.writer, kind::END, &[])?)
    }

    /// Fails early for what cannot fit.
    pub fn expect(&self, more: u64, path: &Path) -> Outcome<()> {
        let all = self.sent.saturating_add(self.held() as u64).saturating_add(more);
        match self.bytes_max {
            Some(most) if all > most => {
                Err(Fault::too_large(format!("{}: the archive would have more than {} bytes", printable(path), most)))
            }
            _ => Ok(()),
        }
    }

    fn held(&self) -> usize {
        self.buffer.len() - frame::HEADER_BYTES
    }

    pub fn put(&mut self, mut bytes: &[u8]) -> Outcome<()> {
        self.expect(bytes.len() as u64, Path::new("/"))?;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.held()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            self.flush_full()?;
        }
        Ok(())
    }

    /// The first `size` bytes of a file; what it grows by is left out.
    pub fn copy(&mut self, file: &mut File, size: u64, path: &Path) -> Outcome<()> {
        let mut left = size;
        while left > 0 {
            let start = self.buffer.len();
            let count = (left.min((CHUNK_BYTES - self.held()) as u64)) as usize;
            self.buffer.resize(start + count, 0);
            let count = loop {
                match file.read(&mut self.buffer[start..]) {
                    Ok(0) => {
                        return Err(Fault::conflict(format!("{}: became shorter while it was read", printable(path))))
                    }
                    Ok(count) => break count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(about(error, path)),
                }
            };
            self.buffer.truncate(start + count);
            left -= count as u64;
            self.flush_full()?;
        }
        Ok(())
    }

    fn flush_full(&mut self) -> Outcome<()> {
        if self.held() == CHUNK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Outcome<()> {
        let held = self.held();
        if held > 0 {
            self.buffer[..frame::HEADER_BYTES].copy_from_slice(&frame::header(kind::DATA, held));
            self.writer.write_all(&self.buffer)?;
            self.buffer.truncate(frame::HEADER_BYTES);
            self.sent += held as u64;
        }
        Ok(())
    }
}

/// The bytes of frames of `data`, up to the frame `end`.
pub struct Incoming<'a, R: Read> {
    reader: &'a mut R,
    payload: Vec<u8>,
    read: usize,
    has_ended: bool,
}

impl<'a, R: Read> Incoming<'a, R> {
    pub fn new(reader: &'a mut R) -> Incoming<'a, R> {
        Incoming { reader, payload: Vec::new(), read: 0, has_ended: false }
    }
}

impl<R: Read> Read for Incoming<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.read == self.payload.len() && !self.has_ended {
            self.read = 0;
            match frame::read_frame(self.reader, &mut self.payload) {
                Ok(Some(kind::DATA)) => {}
                Ok(Some(kind::END)) => {
                    self.payload.clear();
                    self.has_ended = true;
                }
                Ok(Some(_)) => return Err(io::Error::new(ErrorKind::InvalidData, "unknown frame type")),
                Ok(None) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection ended")),
                Err(fault) => return Err(io::Error::new(ErrorKind::InvalidData, fault.message)),
            }
        }
        let count = into.len().min(self.payload.len() - self.read);
        into[..count].copy_from_slice(&self.payload[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}
