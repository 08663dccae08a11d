//! Lines and frames of a connection: one byte type, four bytes length (big-endian), payload.

use crate::protocol::fault::{Fault, Outcome};
use json::{self, Value};
use std::io::{BufRead, Read, Write};

pub const LINE_BYTES_MAX: usize = 1 << 20;
pub const PAYLOAD_BYTES_MAX: usize = 256 * 1024;
pub const HEADER_BYTES: usize = 5;

/// Frame types. What each carries is in docs/internals/guest-protocol.md.
pub mod kind {
    pub const DATA: u8 = 0x01;
    pub const END: u8 = 0x02;
    pub const ACKNOWLEDGE: u8 = 0x03;
    pub const CREDIT: u8 = 0x04;
    pub const PAUSE: u8 = 0x05;
    pub const LEAVE: u8 = 0x06;
    pub const STDOUT: u8 = 0x11;
    pub const STDERR: u8 = 0x12;
    pub const REPLAYED: u8 = 0x13;
    pub const EXIT: u8 = 0x14;
    pub const TAKEN: u8 = 0x15;
    pub const ENTRIES: u8 = 0x20;
    pub const RESULT: u8 = 0x21;
}

/// Reads the request line. An end before the line end is `None`.
pub fn read_line(reader: &mut impl BufRead) -> Outcome<Option<String>> {
    let mut line = Vec::new();
    reader.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        if line.len() > LINE_BYTES_MAX {
            return Err(Fault::too_large("the request line is longer than 1 MiB"));
        }
        return Ok(None);
    }
    line.pop();
    String::from_utf8(line).map(Some).map_err(|_| Fault::invalid("the request line is not UTF-8"))
}

pub fn write_line(writer: &mut impl Write, value: &Value) -> std::io::Result<()> {
    let mut text = String::new();
    value.write(&mut text);
    text.push('\n');
    writer.write_all(text.as_bytes())
}

pub fn fault_value(fault: &Fault) -> Value {
    json::object([("ok", false.into()), ("code", fault.code.into()), ("message", Value::Text(bounded(&fault.message)))])
}

/// A long message is long because of its path, and ends with the reason.
fn bounded(message: &str) -> String {
    const SIDE: usize = 1000;
    let count = message.chars().count();
    if count <= 2 * SIDE {
        return message.to_string();
    }
    message.chars().take(SIDE).chain(['…']).chain(message.chars().skip(count - SIDE)).collect()
}

pub fn header(kind: u8, length: usize) -> [u8; HEADER_BYTES] {
    let length = (length as u32).to_be_bytes();
    [kind, length[0], length[1], length[2], length[3]]
}

/// Appends one frame whose payload comes in two parts, such as an offset and data.
pub fn push(out: &mut Vec<u8>, kind: u8, first: &[u8], second: &[u8]) {
    out.extend_from_slice(&header(kind, first.len() + second.len()));
    out.extend_from_slice(first);
    out.extend_from_slice(second);
}

pub fn write_frame(writer: &mut impl Write, kind: u8, payload: &[u8]) -> std::io::Result<()> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
    push(&mut frame, kind, payload, &[]);
    writer.write_all(&frame)
}

pub fn write_value(writer: &mut impl Write, kind: u8, value: &Value) -> std::io::Result<()> {
    let mut text = String::new();
    value.write(&mut text);
    write_frame(writer, kind, text.as_bytes())
}

/// Reads one frame into `payload`; `None` when the connection ends, inside a frame too.
pub fn read_frame(reader: &mut impl Read, payload: &mut Vec<u8>) -> Outcome<Option<u8>> {
    let mut head = [0; HEADER_BYTES];
    if let Err(error) = reader.read_exact(&mut head) {
        return ended(error);
    }
    let length = payload_length(&head)?;
    payload.resize(length, 0);
    match reader.read_exact(payload) {
        Ok(()) => Ok(Some(head[0])),
        Err(error) => ended(error),
    }
}

fn ended(error: std::io::Error) -> Outcome<Option<u8>> {
    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        Ok(None)
    } else {
        Err(error.into())
    }
}

fn payload_length(head: &[u8]) -> Outcome<usize> {
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length > PAYLOAD_BYTES_MAX {
        return Err(Fault::too_large("a frame is larger than 256 KiB"));
    }
    Ok(length)
}

/// The first complete frame in the bytes of a non-blocking connection: its type, its payload and its length.
pub fn first_frame(bytes: &[u8]) -> Outcome<Option<(u8, &[u8], usize)>> {
    if bytes.len() < HEADER_BYTES {
        return Ok(None);
    }
    let end = HEADER_BYTES + payload_length(bytes)?;
    if bytes.len() < end {
        return Ok(None);
    }
    Ok(Some((bytes[0], &bytes[HEADER_BYTES..end], end)))
}

pub fn integer(payload: &[u8]) -> Outcome<u64> {
    let mut bytes = [0; 8];
    if payload.len() != bytes.len() {
        return Err(Fault::invalid("a frame with an integer has 8 bytes"));
    }
    bytes.copy_from_slice(payload);
    Ok(u64::from_be_bytes(bytes))
}

/// Sends items in frames of JSON lists, so that neither side holds a long list in one line.
pub struct Entries<'a, W: Write> {
    writer: &'a mut W,
    batch: String,
    sent: usize,
}

impl<'a, W: Write> Entries<'a, W> {
    pub fn new(writer: &'a mut W) -> Self {
        Entries { writer, batch: String::new(), sent: 0 }
    }

    /// The bytes of all payloads if the list ended here.
    pub fn bytes(&self) -> usize {
        self.sent + self.batch.len() + 1
    }

    /// `item` is far smaller than a frame.
    pub fn push(&mut self, item: &Value) -> std::io::Result<()> {
        let mut text = String::new();
        item.write(&mut text);
        if !self.batch.is_empty() && self.batch.len() + text.len() + 2 > PAYLOAD_BYTES_MAX / 2 {
            self.flush()?;
        }
        self.batch.push(if self.batch.is_empty() { '[' } else { ',' });
        self.batch.push_str(&text);
        Ok(())
    }

    pub fn flush(&mut self) -> std::io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.batch.push(']');
        write_frame(self.writer, kind::ENTRIES, self.batch.as_bytes())?;
        self.sent += self.batch.len();
        self.batch.clear();
        Ok(())
    }

    pub fn end(mut self) -> std::io::Result<()> {
        self.flush()?;
        write_frame(self.writer, kind::END, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, kind::DATA, b"abc").unwrap();
        write_frame(&mut bytes, kind::END, b"").unwrap();
        assert_eq!(bytes[..8], [1, 0, 0, 0, 3, b'a', b'b', b'c']);
        let (mut reader, mut payload) = (&bytes[..], Vec::new());
        assert_eq!(read_frame(&mut reader, &mut payload).unwrap(), Some(kind::DATA));
        assert_eq!(payload, b"abc");
        assert_eq!(read_frame(&mut reader, &mut payload).unwrap(), Some(kind::END));
        assert_eq!(read_frame(&mut reader, &mut payload).unwrap(), None);
        assert_eq!(first_frame(&bytes).unwrap(), Some((kind::DATA, &b"abc"[..], 8)));
        assert_eq!(first_frame(&bytes[..7]).unwrap(), None);
    }

    #[test]
    fn a_frame_past_the_bound_is_refused_before_memory_is_taken() {
        let mut payload = Vec::new();
        let bytes = [kind::DATA, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(read_frame(&mut &bytes[..], &mut payload).unwrap_err().code, "too_large");
        assert!(first_frame(&bytes).is_err());
        assert!(payload.capacity() == 0);
    }

    #[test]
    fn a_line_ends_at_its_line_end_and_is_bounded() {
        let mut reader = &b"{}\nrest"[..];
        assert_eq!(read_line(&mut reader).unwrap(), Some("{}".to_string()));
        assert_eq!(reader, b"rest");
        assert_eq!(read_line(&mut &b"unfinished"[..]).unwrap(), None);
        assert_eq!(read_line(&mut &b"\xff\n"[..]).unwrap_err().code, "invalid_request");
        let long = vec![b'a'; LINE_BYTES_MAX + 10];
        assert_eq!(read_line(&mut &long[..]).unwrap_err().code, "too_large");
    }

    #[test]
    fn a_long_message_keeps_its_reason() {
        let long = format!("/{}: is too long", "ä".repeat(5000));
        let message = bounded(&long);
        assert!(message.starts_with("/ä") && message.ends_with(": is too long") && message.chars().count() == 2001);
        assert_eq!(bounded("short"), "short");
    }

    #[test]
    fn entries_are_split_into_bounded_frames() {
        let mut bytes = Vec::new();
        let mut entries = Entries::new(&mut bytes);
        let item = Value::Text("x".repeat(1000));
        for _ in 0..500 {
            entries.push(&item).unwrap();
        }
        let told = entries.bytes();
        entries.end().unwrap();
        let (mut reader, mut payload, mut count, mut sent) = (&bytes[..], Vec::new(), 0, 0);
        while let Some(kind) = read_frame(&mut reader, &mut payload).unwrap() {
            if kind == kind::ENTRIES {
                sent += payload.len();
                count += json::parse(std::str::from_utf8(&payload).unwrap()).unwrap().as_list().unwrap().len();
            }
        }
        assert_eq!((count, sent), (500, told));
    }
}
