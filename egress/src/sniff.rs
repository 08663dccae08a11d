//! What a client speaks, by its first bytes.

use crate::hello::{self, Hello, Parsed};
use crate::limits::HEAD_BYTES_MAX;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{timeout_at, Instant};

/// The beginning of HTTP/2 without TLS (RFC 9113 § 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Longer than any registered method.
const METHOD_BYTES_MAX: usize = 32;
const METHODS: [&[u8]; 9] = [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE", b"CONNECT"];
const CHUNK_BYTES: usize = 4 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Tls(Hello),
    /// It begins as TLS or HTTP does, and is none: no server should see it as what it is not.
    Broken,
    Http,
    /// Any other protocol.
    Opaque,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Sniffed {
    Kind(Kind),
    /// Nothing came: the server may be the one that speaks first.
    Silent,
    /// It began and did not go on.
    Late,
    Closed,
}

/// What these bytes are; absent while more are needed.
pub fn classify(bytes: &[u8]) -> Option<Kind> {
    if bytes.is_empty() {
        return None;
    }
    let full = bytes.len() >= HEAD_BYTES_MAX;
    if hello::begins(bytes) {
        return match hello::parse(bytes) {
            Parsed::Hello(hello) => Some(Kind::Tls(hello)),
            Parsed::Broken => Some(Kind::Broken),
            Parsed::Partial => full.then_some(Kind::Broken),
        };
    }
    if HTTP2_PREFACE.starts_with(bytes) {
        return (bytes.len() == HTTP2_PREFACE.len()).then_some(Kind::Http);
    }
    if bytes.starts_with(HTTP2_PREFACE) {
        return Some(Kind::Http);
    }
    request_line(bytes, full)
}

/// A method is letters in upper case; what begins so and is one line without a version of HTTP is another protocol (`NICK x`, `HELP`).
fn request_line(bytes: &[u8], full: bool) -> Option<Kind> {
    // Servers skip empty lines before a request (RFC 9112 § 2.2), so they must not hide one.
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    let line = &bytes[start..];
    let method = line.iter().take_while(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_')).count();
    match line.get(method) {
        _ if method > METHOD_BYTES_MAX => return Some(Kind::Opaque),
        None => return full.then_some(Kind::Opaque),
        Some(b' ' | b'\t') if method > 0 => {}
        Some(_) => return Some(Kind::Opaque),
    }
    match line.iter().position(|byte| *byte == b'\n') {
        Some(end) if has_version(&line[..end]) => Some(Kind::Http),
        // A request of HTTP/0.9 would go past the rules about requests.
        Some(_) => Some(if METHODS.contains(&&line[..method]) { Kind::Broken } else { Kind::Opaque }),
        None => full.then_some(Kind::Broken),
    }
}

fn has_version(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let last = line.rsplit(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default();
    last.len() >= 5 && last[..5].eq_ignore_ascii_case(b"HTTP/")
}

/// Reads until it is clear what the client speaks. What was read is in `buffer`. Without `silence` the first byte has the whole time too.
pub async fn sniff(
    stream: &TcpStream,
    buffer: &mut Vec<u8>,
    silence: Option<Duration>,
    end: Instant,
) -> io::Result<Sniffed> {
    loop {
        if let Some(kind) = classify(buffer) {
            return Ok(Sniffed::Kind(kind));
        }
        let quiet = buffer.is_empty();
        let until = silence.filter(|_| quiet).map_or(end, |silence| end.min(Instant::now() + silence));
        let Ok(ready) = timeout_at(until, stream.readable()).await else {
            return Ok(if quiet { Sniffed::Silent } else { Sniffed::Late });
        };
        ready?;
        let before = buffer.len();
        buffer.resize((before + CHUNK_BYTES).min(HEAD_BYTES_MAX), 0);
        let read = stream.try_read(&mut buffer[before..]);
        buffer.truncate(before + read.as_ref().map_or(0, |length| *length));
        match read {
            Ok(0) => return Ok(Sniffed::Closed),
            Ok(_) => {}
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {}
            Err(fault) => return Err(fault),
        }
    }
}

#[cfg(test)]
#[path = "sniff_test.rs"]
mod tests;
