//! What is in a file, as far as a client asks for it.

use crate::files::{about, access, regular, stat_value, CHUNK_BYTES, INTEGER_MAX};
use crate::protocol::bytes::printable;
use crate::protocol::fault::{Fault, Outcome};
use crate::protocol::frame::{self, kind};
use json::{object, Value};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file of untrusted size is read into memory up to this bound.
const MEASURED_BYTES_MAX: u64 = 16 << 20;

/// Sends the stat, then the bytes from `start` to `end` (inclusive) as far as the file reaches.
pub fn read(path: &Path, start: Option<u64>, end: Option<u64>, writer: &mut impl Write) -> Outcome<()> {
    let mut content = Content::open(path)?;
    let (metadata, size) = (&content.metadata, content.size());
    let start = start.unwrap_or(0).min(size);
    let length = end.map_or(size, |end| end.saturating_add(1).min(size)).saturating_sub(start);
    let answer = [
        ("ok", true.into()),
        ("stat", stat_value(path, metadata, size)),
        ("length", length.into()),
        ("version", Value::Text(version(metadata, size))),
    ];
    frame::write_line(writer, &object(answer))?;

    if let Some(measured) = &content.measured {
        return send(&mut &measured[start as usize..], length, path, writer);
    }
    content.file.seek(SeekFrom::Start(start)).map_err(|error| about(error, path))?;
    send(&mut content.file, length, path, writer)
}

pub struct Content {
    file: File,
    metadata: Metadata,
    /// The content of a file whose size cannot be trusted.
    measured: Option<Vec<u8>>,
}

impl Content {
    /// Only the size of a file on a disk or in memory is what a reader gets: files of `/proc` state 0, those of sysfs a page, those of
    /// lxcfs any size.
    pub fn open(path: &Path) -> Outcome<Content> {
        regular(path, &access::metadata(path).map_err(|error| about(error, path))?)?;
        let opened = access::open(path, sys::O_NONBLOCK | sys::O_NOCTTY);
        let mut file = opened.map_err(|error| about(error, path))?;
        let metadata = file.metadata().map_err(|error| about(error, path))?;
        regular(path, &metadata)?;
        if metadata.len() > INTEGER_MAX {
            return Err(Fault::too_large(format!("{}: is too large to be read", printable(path))));
        }
        if metadata.len() > 0 && sys::has_true_sizes(&file) {
            return Ok(Content { file, metadata, measured: None });
        }
        let mut bytes = Vec::new();
        (&mut file).take(MEASURED_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| about(error, path))?;
        if bytes.len() as u64 <= MEASURED_BYTES_MAX {
            return Ok(Content { file, metadata, measured: Some(bytes) });
        }
        // Network and user file systems have large files, and know their sizes. Where one is wrong the transfer fails.
        if metadata.len() > MEASURED_BYTES_MAX {
            return Ok(Content { file, metadata, measured: None });
        }
        let message =
            format!("{}: has more than {} bytes and does not tell its size", printable(path), MEASURED_BYTES_MAX);
        Err(Fault::too_large(message))
    }

    pub fn size(&self) -> u64 {
        self.measured.as_ref().map_or(self.metadata.len(), |bytes| bytes.len() as u64)
    }
}

/// Changes with the file and its content, so that a client can continue to read the same one.
fn version(metadata: &Metadata, size: u64) -> String {
    format!("{}-{}-{}-{}.{:09}", metadata.dev(), metadata.ino(), size, metadata.mtime(), metadata.mtime_nsec())
}

fn send(source: &mut impl Read, length: u64, path: &Path, writer: &mut impl Write) -> Outcome<()> {
    let mut left = length;
    let mut buffer = vec![0; frame::HEADER_BYTES + CHUNK_BYTES.min(length as usize)];
    while left > 0 {
        let most = (buffer.len() - frame::HEADER_BYTES).min(left as usize);
        let count = match source.read(&mut buffer[frame::HEADER_BYTES..frame::HEADER_BYTES + most]) {
            Ok(0) => return Err(Fault::conflict(format!("{}: became shorter while it was read", printable(path)))),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(about(error, path)),
        };
        buffer[..frame::HEADER_BYTES].copy_from_slice(&frame::header(kind::DATA, count));
        writer.write_all(&buffer[..frame::HEADER_BYTES + count])?;
        left -= count as u64;
    }
    Ok(frame::write_frame(writer, kind::END, &[])?)
}
