//! The form of CRIU's images: two magic numbers, then entries of a length and a protobuf message.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use sys::Error;

const HEADER_BYTES: usize = 8;
pub const LENGTH_DELIMITED: u64 = 2;

/// Calls `work` with what precedes an entry (the header of the file, later nothing) and with the entry.
pub fn of_each_entry(path: &Path, mut work: impl FnMut(&[u8], &[u8]) -> Result<(), Error>) -> Result<(), Error> {
    let failed = |error| Error::io("read", path.display(), error);
    let file = File::open(path).map_err(failed)?;
    let mut left = file.metadata().map_err(failed)?.len();
    let mut input = BufReader::new(file);
    let mut header = vec![0; HEADER_BYTES];
    input.read_exact(&mut header).map_err(failed)?;
    left = left.saturating_sub(HEADER_BYTES as u64);
    let mut entry = Vec::new();
    while left > 0 {
        let mut length = [0; 4];
        input.read_exact(&mut length).map_err(failed)?;
        let length = u64::from(u32::from_le_bytes(length));
        left = left.saturating_sub(4);
        if length > left {
            return Err(Error::new(format!("{}: an entry is longer than the file", path.display())));
        }
        entry.resize(length as usize, 0);
        input.read_exact(&mut entry).map_err(failed)?;
        left -= length;
        work(&header, &entry)?;
        header.clear();
    }
    Ok(())
}

pub struct Field<'a> {
    pub number: u64,
    pub whole: &'a [u8],
    /// The content of a field with a length.
    pub content: &'a [u8],
    /// The value of a varint field.
    pub value: u64,
}

/// The fields of a protobuf message; `None` for other bytes.
pub fn fields(message: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut found = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let (key, after) = read_varint(rest)?;
        let mut value = 0;
        let (content, next) = match key & 7 {
            0 => {
                let (number, next) = read_varint(after)?;
                value = number;
                (&after[..0], next)
            }
            1 => (&after[..0], after.get(8..)?),
            LENGTH_DELIMITED => {
                let (length, after) = read_varint(after)?;
                let length = usize::try_from(length).ok()?;
                (after.get(..length)?, &after[length..])
            }
            5 => (&after[..0], after.get(4..)?),
            _ => return None,
        };
        found.push(Field { number: key >> 3, whole: &rest[..rest.len() - next.len()], content, value });
        rest = next;
    }
    Some(found)
}

fn read_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Makes images for the tests of their readers and writers.
#[cfg(test)]
pub mod building {
    use super::{varint, LENGTH_DELIMITED};

    /// A field that is a varint.
    pub fn number(field: u64, value: u64) -> Vec<u8> {
        [varint(field << 3), varint(value)].concat()
    }

    /// A field with a length: text, bytes, or a message of these fields.
    pub fn message<T: AsRef<[u8]>>(field: u64, content: &[T]) -> Vec<u8> {
        let content: Vec<u8> = content.iter().flat_map(AsRef::as_ref).copied().collect();
        [varint(field << 3 | LENGTH_DELIMITED), varint(content.len() as u64), content].concat()
    }

    /// A file of such entries.
    pub fn image(entries: &[Vec<u8>]) -> Vec<u8> {
        let framed = entries.iter().map(|entry| [(entry.len() as u32).to_le_bytes().to_vec(), entry.clone()].concat());
        [b"\x19CVT810V".to_vec(), framed.collect::<Vec<_>>().concat()].concat()
    }
}
