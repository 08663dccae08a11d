//! The headers of an entry as ustar, with records of pax for what has no place there.

use crate::{Entry, Kind, BLOCK, HEADER_BYTES_MAX, SECONDS_MAX};

const NAME_BYTES: usize = 100;
/// The highest number of a field of 8 bytes, and of one of 12.
const SHORT_MAX: u64 = 0o7_777_777;
const LONG_MAX: u64 = 0o77_777_777_777;
/// Of all attributes of an entry, so that its records fit what a reader takes.
pub const ATTRIBUTE_BYTES_MAX: usize = HEADER_BYTES_MAX as usize / 2;

/// The number of a device.
#[derive(Clone, Copy)]
pub struct Device {
    pub is_block: bool,
    pub major: u32,
    pub minor: u32,
}

/// Appends the headers of an entry; `size` bytes of content and their `padding` follow. `device` is that of a `Kind::Device`.
pub fn put_headers(entry: &Entry, size: u64, device: Option<Device>, out: &mut Vec<u8>) {
    let mut records = Vec::new();
    if entry.path.len() > NAME_BYTES {
        put_record(b"path", &entry.path, &mut records);
    }
    if entry.target.len() > NAME_BYTES {
        put_record(b"linkpath", &entry.target, &mut records);
    }
    for (key, value, most) in [("size", size, LONG_MAX), ("uid", entry.uid, SHORT_MAX), ("gid", entry.gid, SHORT_MAX)] {
        if value > most {
            put_record(key.as_bytes(), value.to_string().as_bytes(), &mut records);
        }
    }
    for (name, value) in &entry.attributes {
        put_record(&[b"SCHILY.xattr.", &name[..]].concat(), value, &mut records);
    }
    if !records.is_empty() {
        let length = records.len() as u64;
        put_block(b"././@PaxHeader", b"", b'x', [0o644, 0, 0, length, 0], None, out);
        out.extend_from_slice(&records);
        out.resize(out.len() + padding(length), 0);
    }
    let kind = match entry.kind {
        Kind::File => b'0',
        Kind::HardLink => b'1',
        Kind::Link => b'2',
        Kind::Device if device.map_or(false, |device| device.is_block) => b'4',
        Kind::Device => b'3',
        Kind::Folder => b'5',
        Kind::Fifo => b'6',
    };
    let seconds = entry.seconds.clamp(0, SECONDS_MAX) as u64;
    let numbers = [u64::from(entry.mode), entry.uid, entry.gid, size, seconds];
    put_block(&entry.path, &entry.target, kind, numbers, device, out);
}

/// The bytes of zero behind a content of this size.
pub fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

/// The end of an archive.
pub fn put_end(out: &mut Vec<u8>) {
    out.resize(out.len() + 2 * BLOCK, 0);
}

/// `numbers`: mode, user, group, size, time. What does not fit is 0 or cut, as a record says it.
fn put_block(path: &[u8], target: &[u8], kind: u8, numbers: [u64; 5], device: Option<Device>, out: &mut Vec<u8>) {
    let mut block = [0; BLOCK];
    let cut = |bytes: &[u8]| bytes[..bytes.len().min(NAME_BYTES)].to_vec();
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    let short = |value: u64| format!("{:07o}\0", if value > SHORT_MAX { 0 } else { value });
    let long = |value: u64| format!("{:011o}\0", if value > LONG_MAX { 0 } else { value });
    let [mode, uid, gid, size, seconds] = numbers;
    put(0, &cut(path));
    put(100, short(mode).as_bytes());
    put(108, short(uid).as_bytes());
    put(116, short(gid).as_bytes());
    put(124, long(size).as_bytes());
    put(136, long(seconds).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, &cut(target));
    put(257, b"ustar\x0000");
    if let Some(device) = device {
        put(329, short(device.major.into()).as_bytes());
        put(337, short(device.minor.into()).as_bytes());
    }
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{:06o}\0 ", sum).as_bytes());
    out.extend_from_slice(&block);
}

/// `LENGTH KEY=VALUE\n`: the length counts its own digits.
fn put_record(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend_from_slice(format!("{} ", length).as_bytes());
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tar;
    use std::io::Read;

    fn entry(kind: Kind, path: &[u8]) -> Entry {
        Entry {
            kind,
            path: path.to_vec(),
            target: Vec::new(),
            mode: 0o4755,
            uid: 1,
            gid: 2,
            seconds: 1_700_000_000,
            attributes: Vec::new(),
            is_sparse: false,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let long = vec![b'x'; 4000];
        let attributes = vec![(b"user.note".to_vec(), b"a=b\n\0\xff".to_vec())];
        let entries = [
            entry(Kind::File, b"odd\n\xff"),
            Entry { attributes, uid: 1 << 31, ..entry(Kind::File, &long) },
            Entry { target: long.clone(), ..entry(Kind::Link, b"link") },
            Entry { target: vec![b'y'; NAME_BYTES], seconds: -5, ..entry(Kind::HardLink, &[b'z'; NAME_BYTES]) },
            entry(Kind::Folder, b"./"),
            entry(Kind::Fifo, b"pipe"),
        ];
        let mut bytes = Vec::new();
        for entry in &entries {
            let content: &[u8] = if entry.kind == Kind::File { b"content" } else { b"" };
            put_headers(entry, content.len() as u64, None, &mut bytes);
            bytes.extend_from_slice(content);
            bytes.resize(bytes.len() + padding(content.len() as u64), 0);
        }
        put_end(&mut bytes);
        assert_eq!(bytes.len() % BLOCK, 0);
        let mut tar = Tar::new(&bytes[..]);
        for entry in entries {
            let found = tar.next_entry().unwrap().unwrap();
            assert_eq!((found.kind, &found.path, &found.target), (entry.kind, &entry.path, &entry.target));
            assert_eq!((found.mode, found.uid, found.gid), (entry.mode, entry.uid, entry.gid));
            assert_eq!((found.seconds, &found.attributes), (entry.seconds.max(0), &entry.attributes));
            let mut content = Vec::new();
            tar.content().read_to_end(&mut content).unwrap();
            assert_eq!(content, if entry.kind == Kind::File { &b"content"[..] } else { b"" });
        }
        assert!(tar.next_entry().unwrap().is_none());
    }

    #[test]
    fn a_size_beyond_eight_gibibytes_has_a_record() {
        let mut bytes = Vec::new();
        put_headers(&entry(Kind::File, b"big"), LONG_MAX + 1, None, &mut bytes);
        assert!(bytes.windows(17).any(|part| part == b"size=8589934592\n\0"));
    }

    #[test]
    fn the_length_of_a_record_counts_itself() {
        for count in [0, 1, 90, 91, 92, 93, 94, 95, 96, 990, 991, 992, 993, 994] {
            let mut out = Vec::new();
            put_record(b"k", &vec![b'v'; count], &mut out);
            let length: usize = String::from_utf8_lossy(&out).split(' ').next().unwrap().parse().unwrap();
            assert_eq!(length, out.len());
        }
    }
}
