//! Reads HTTP/1.1 of a hostile client strictly, before the parser sees it: what two programs may read in two ways is refused.
//!
//! States: head → body (of a length, or in chunks) → head …; after the head of an upgrade, whatever comes is passed on. A head is passed on whole
//! and only when it is sound. A fault in a head reaches the parser as a byte that no request has (it answers 400 and closes); a fault in
//! a body is an error of the connection.

use super::activity::Activity;
use super::head::{self, Next};
use bytes::{Buf, BytesMut};
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{ready, Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Request line and headers.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
const CHUNK_LINE_BYTES_MAX: usize = 256;
const TRAILER_BYTES_MAX: usize = 16 * 1024;
const READ_BYTES: usize = 8 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Length(u64),
    ChunkLine,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    /// An upgrade: no more HTTP.
    Raw,
    /// After CONNECT, which is refused: nothing more is read until the connection ends.
    Silent,
    /// Nothing more comes.
    Ended,
}

/// Why a request was refused, for the entry.
pub type Fault = Arc<OnceLock<&'static str>>;

pub struct Strict<S> {
    stream: S,
    state: State,
    /// What was read; the first `checked` bytes may be passed on.
    buffer: BytesMut,
    checked: usize,
    /// Bytes of the unfinished head or line that were looked at.
    seen: usize,
    fault: Fault,
    activity: Arc<Activity>,
}

impl<S> Strict<S> {
    pub fn new(stream: S, fault: Fault, activity: Arc<Activity>) -> Self {
        Strict { stream, state: State::Head, buffer: BytesMut::new(), checked: 0, seen: 0, fault, activity }
    }

    /// Checks what is in the buffer as far as possible.
    fn check(&mut self) -> Result<()> {
        loop {
            let rest = &self.buffer[self.checked..];
            if rest.is_empty() {
                return Ok(());
            }
            match self.state {
                State::Head => {
                    // Some clients end a body with a line end of their own (RFC 9112, section 2.2).
                    if rest.starts_with(b"\r\n") {
                        self.checked += 2;
                        continue;
                    }
                    let Some(length) = self.find_end(b"\r\n\r\n", HEAD_BYTES_MAX, "the head of a request is too long")
                    else {
                        self.activity.head_begun();
                        return Ok(());
                    };
                    self.activity.head_done();
                    match length.and_then(|length| Ok((length, head::read(&self.buffer[self.checked..][..length])?))) {
                        Ok((length, next)) => {
                            self.checked += length;
                            self.state = match next {
                                Next::Head => State::Head,
                                Next::Length(length) => State::Length(length),
                                Next::Chunks => State::ChunkLine,
                                Next::Raw => State::Raw,
                                Next::Nothing => State::Silent,
                            };
                        }
                        Err(fault) => self.poison(fault),
                    }
                }
                State::Length(left) => self.pass(left, State::Length, State::Head),
                State::ChunkData(left) => self.pass(left, State::ChunkData, State::ChunkEnd),
                State::ChunkEnd => {
                    if !b"\r\n".starts_with(&rest[..rest.len().min(2)]) {
                        return self.fail("a chunk does not end where it says");
                    }
                    if rest.len() < 2 {
                        return Ok(());
                    }
                    self.checked += 2;
                    self.state = State::ChunkLine;
                }
                State::ChunkLine => {
                    let Some(length) = self.find_end(b"\r\n", CHUNK_LINE_BYTES_MAX, "the line of a chunk is too long")
                    else {
                        return Ok(());
                    };
                    match length
                        .and_then(|length| Ok((length, head::chunk_size(&self.buffer[self.checked..][..length - 2])?)))
                    {
                        Ok((length, size)) => {
                            self.checked += length;
                            self.state = if size == 0 { State::Trailers } else { State::ChunkData(size) };
                        }
                        Err(fault) => return self.fail(fault),
                    }
                }
                State::Trailers => {
                    if rest == b"\r" {
                        return Ok(());
                    }
                    if rest.starts_with(b"\r\n") {
                        self.checked += 2;
                        self.state = State::Head;
                        continue;
                    }
                    let Some(length) = self.find_end(b"\r\n\r\n", TRAILER_BYTES_MAX, "the trailers are too long")
                    else {
                        return Ok(());
                    };
                    let read = length.and_then(|length| {
                        head::fields(&self.buffer[self.checked..][..length - 4])
                            .try_for_each(|field| field.map(drop))
                            .map(|()| length)
                    });
                    match read {
                        Ok(length) => {
                            self.checked += length;
                            self.state = State::Head;
                        }
                        Err(fault) => return self.fail(fault),
                    }
                }
                State::Raw => self.checked = self.buffer.len(),
                State::Silent | State::Ended => {
                    self.buffer.truncate(self.checked);
                    return Ok(());
                }
            }
        }
    }

    /// The length up to and with `end`; `None`: more must be read. A line end without a carriage return is a fault.
    fn find_end(
        &mut self,
        end: &[u8],
        max: usize,
        too_long: &'static str,
    ) -> Option<std::result::Result<usize, &'static str>> {
        let rest = &self.buffer[self.checked..];
        let from = std::mem::replace(&mut self.seen, rest.len());
        for at in memchr::memchr_iter(b'\n', &rest[from.min(rest.len())..]).map(|at| at + from) {
            if at == 0 || rest[at - 1] != b'\r' {
                self.seen = 0;
                return Some(Err("a line ends without a carriage return"));
            }
            if rest[..=at].ends_with(end) {
                self.seen = 0;
                return Some(if at < max { Ok(at + 1) } else { Err(too_long) });
            }
        }
        if rest.len() > max {
            self.seen = 0;
            return Some(Err(too_long));
        }
        None
    }

    fn pass(&mut self, left: u64, more: fn(u64) -> State, next: State) {
        let here = (self.buffer.len() - self.checked).min(usize::try_from(left).unwrap_or(usize::MAX));
        self.checked += here;
        let left = left - here as u64;
        self.state = if left == 0 { next } else { more(left) };
    }

    fn poison(&mut self, fault: &'static str) {
        let _ = self.fault.set(fault);
        self.buffer.truncate(self.checked);
        self.buffer.extend_from_slice(b"\0");
        self.checked += 1;
        self.state = State::Ended;
    }

    fn fail(&mut self, fault: &'static str) -> Result<()> {
        let _ = self.fault.set(fault);
        self.state = State::Ended;
        Err(Error::new(ErrorKind::InvalidData, fault))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        loop {
            if this.checked > 0 {
                let length = this.checked.min(out.remaining());
                out.put_slice(&this.buffer[..length]);
                this.buffer.advance(length);
                this.checked -= length;
                if this.buffer.is_empty() {
                    this.buffer = BytesMut::new();
                }
                return Poll::Ready(Ok(()));
            }
            if this.state == State::Ended || out.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if this.state == State::Silent {
                return Poll::Pending;
            }
            // A long body goes straight to the reader.
            if let (true, State::Raw | State::Length(_)) = (this.buffer.is_empty(), this.state) {
                let max = if let State::Length(left) = this.state {
                    usize::try_from(left).unwrap_or(usize::MAX)
                } else {
                    usize::MAX
                };
                let mut part = out.take(max);
                ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
                let read = part.filled().len();
                // SAFETY: `part` is the unfilled rest of `out`, and its first `read` bytes were just filled.
                unsafe { out.assume_init(read) };
                out.advance(read);
                if let State::Length(left) = this.state {
                    let left = left - read as u64;
                    this.state = if left == 0 { State::Head } else { State::Length(left) };
                }
                return Poll::Ready(Ok(()));
            }
            let mut space = [std::mem::MaybeUninit::uninit(); READ_BYTES];
            let mut space = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut space))?;
            if space.filled().is_empty() {
                this.state = State::Ended;
                return Poll::Ready(Ok(()));
            }
            this.buffer.extend_from_slice(space.filled());
            this.check()?;
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Strict<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
#[path = "strict_test.rs"]
mod tests;
