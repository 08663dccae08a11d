//! Reads a tar of unknown origin: ustar, the long names and base-256 numbers of GNU, and the records of pax (POSIX.1-2008, pax(1); GNU tar
//! manual, "Basic Tar Format"). Each length is checked against a bound before it is believed. Writes the headers of entries too.

mod sparse;
mod write;

use std::io::{self, Read};

use sparse::{Sparse, SparseRecords};
use sys::{Code, Error};
pub use write::{padding, put_end, put_headers, Device, ATTRIBUTE_BYTES_MAX};

const BLOCK: usize = 512;
/// Bounds of the long names and records of one entry: their bytes together, and their number.
const HEADER_BYTES_MAX: u64 = 1 << 20;
const HEADERS_MAX: usize = 64;
/// Above the year 2200; later times are cut to it.
const SECONDS_MAX: i64 = 1 << 33;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    File,
    HardLink,
    Link,
    Device,
    Folder,
    Fifo,
}

#[derive(Debug)]
pub struct Entry {
    pub kind: Kind,
    pub path: Vec<u8>,
    /// Where a link leads, or what a hard link is another name of.
    pub target: Vec<u8>,
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub seconds: i64,
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its content has holes, and any length.
    pub is_sparse: bool,
}

/// What the headers in front of an entry say about it.
#[derive(Default)]
struct Records {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    seconds: Option<i64>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    sparse: Option<SparseRecords>,
}

pub struct Tar<R> {
    input: R,
    /// Unread bytes of the last entry's content, and of the padding behind it.
    left: u64,
    padding: u64,
    /// Of the last entry.
    sparse: Option<Sparse>,
}

impl<R: Read> Tar<R> {
    pub fn new(input: R) -> Tar<R> {
        Tar { input, left: 0, padding: 0, sparse: None }
    }

    pub fn into_input(self) -> R {
        self.input
    }

    /// The next entry; what was not read of the last one is skipped. `None` at the end of the archive.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        let mut records = Records::default();
        let mut left = HEADER_BYTES_MAX;
        for _ in 0..=HEADERS_MAX {
            self.skip_content()?;
            let block = match self.block()? {
                Some(block) if block.iter().any(|&byte| byte != 0) => block,
                _ => return Ok(None),
            };
            check_sum(&block)?;
            let size = number(&block[124..136], "size")?;
            match block[156] {
                b'x' => {
                    let text = self.header(size, &mut left)?;
                    read_records(&text, &mut records)?;
                }
                // Records of the whole archive, such as a comment. Other unpackers of layers ignore them too.
                b'g' => {
                    self.header(size, &mut left)?;
                }
                b'L' => records.path = Some(until_nul(&self.header(size, &mut left)?).to_vec()),
                b'K' => records.target = Some(until_nul(&self.header(size, &mut left)?).to_vec()),
                _ => return self.entry(&block, size, records).map(Some),
            }
        }
        Err(Error::with(Code::TooLarge, format!("there are more than {HEADERS_MAX} headers in front of one entry")))
    }

    /// The content of the last entry.
    pub fn content(&mut self) -> Content<'_, R> {
        Content(self)
    }

    fn entry(&mut self, block: &[u8; BLOCK], size: u64, mut records: Records) -> Result<Entry, Error> {
        let path = records.sparse.as_mut().and_then(|sparse| sparse.path.take()).or(records.path);
        let path = path.unwrap_or_else(|| path_of(block));
        let kind = match block[156] {
            b'0' | b'7' | b'S' => Kind::File,
            // The oldest format has no type for folders.
            0 if path.ends_with(b"/") => Kind::Folder,
            0 => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Link,
            b'3' | b'4' => Kind::Device,
            b'5' => Kind::Folder,
            b'6' => Kind::Fifo,
            other => return Err(refused(&path, &format!("is of the unknown type {:?}", char::from(other)))),
        };
        let size = match kind {
            Kind::File => records.size.unwrap_or(size),
            // Some archives name the size of the file that a hard link leads to; none has content behind it.
            _ => 0,
        };
        self.left = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        self.sparse = match &records.sparse {
            _ if block[156] == b'S' => Some(self.old_sparse(block, size, &path)?),
            Some(sparse) if kind == Kind::File => Some(self.pax_sparse(sparse, &path)?),
            _ => None,
        };
        let given = |record: Option<u64>, field: &[u8], what| record.map_or_else(|| number(field, what), Ok);
        Ok(Entry {
            kind,
            target: records.target.unwrap_or_else(|| until_nul(&block[157..257]).to_vec()),
            mode: (number(&block[100..108], "mode")? & 0o7777) as u32,
            uid: given(records.uid, &block[108..116], "user")?,
            gid: given(records.gid, &block[116..124], "group")?,
            seconds: records.seconds.unwrap_or_else(|| seconds(&block[136..148])).clamp(0, SECONDS_MAX),
            attributes: records.attributes,
            is_sparse: self.sparse.is_some(),
            path,
        })
    }

    fn skip_content(&mut self) -> Result<(), Error> {
        let count = self.left.checked_add(self.padding).ok_or_else(|| Error::new("a size is no size"))?;
        self.left = 0;
        self.padding = 0;
        let skipped = io::copy(&mut self.input.by_ref().take(count), &mut io::sink()).map_err(failed)?;
        if skipped == count {
            Ok(())
        } else {
            Err(cut_off())
        }
    }

    /// `None` where the archive ends without the empty blocks that should end it.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, Error> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.input.read(&mut block[filled..]).map_err(failed)? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(cut_off()),
                count => filled += count,
            }
        }
        Ok(Some(block))
    }

    /// Reads a header's content and subtracts its bytes from `left`.
    fn header(&mut self, size: u64, left: &mut u64) -> Result<Vec<u8>, Error> {
        if size > *left {
            return Err(Error::new(format!("a header of {size} bytes is too long, or several are together")));
        }
        *left -= size;
        let mut bytes = Vec::new();
        self.input.by_ref().take(size).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 != size {
            return Err(cut_off());
        }
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        Ok(bytes)
    }
}

pub struct Content<'a, R>(&'a mut Tar<R>);

impl<R: Read> Content<'_, R> {
    /// Skips the zeros of a hole, and returns how many there were.
    pub fn skip_hole(&mut self) -> u64 {
        let hole = self.0.sparse.as_ref().map_or(0, Sparse::hole);
        if let Some(sparse) = self.0.sparse.as_mut().filter(|_| hole > 0) {
            sparse.pass(hole);
        }
        hole
    }

    fn stored(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = (into.len() as u64).min(self.0.left) as usize;
        if room == 0 {
            return Ok(0);
        }
        let count = self.0.input.read(&mut into[..room])?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is cut off"));
        }
        self.0.left -= count as u64;
        Ok(count)
    }
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.sparse.take() {
            None => self.stored(into),
            Some(mut sparse) => {
                let count = sparse::read(&mut sparse, into, |into| self.stored(into));
                self.0.sparse = Some(sparse);
                count
            }
        }
    }
}

fn path_of(block: &[u8]) -> Vec<u8> {
    let name = until_nul(&block[..100]);
    let prefix = until_nul(&block[345..500]);
    // GNU keeps times where ustar has the prefix.
    if &block[257..263] != b"ustar\0" || prefix.is_empty() {
        return name.to_vec();
    }
    [prefix, b"/", name].concat()
}

/// Records `LENGTH KEY=VALUE\n`, the length being that of the whole record.
fn read_records(mut text: &[u8], records: &mut Records) -> Result<(), Error> {
    let wrong = || Error::new("a record of a header is damaged");
    while !text.is_empty() {
        let space = text.iter().position(|&byte| byte == b' ').ok_or_else(wrong)?;
        let length: usize = std::str::from_utf8(&text[..space]).ok().and_then(|t| t.parse().ok()).ok_or_else(wrong)?;
        if length <= space + 1 || length > text.len() || text[length - 1] != b'\n' {
            return Err(wrong());
        }
        let record = &text[space + 1..length - 1];
        let equals = record.iter().position(|&byte| byte == b'=').ok_or_else(wrong)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        let whole = || std::str::from_utf8(value).ok().and_then(|value| value.parse().ok()).ok_or_else(wrong);
        match key {
            b"path" => records.path = Some(value.to_vec()),
            b"linkpath" => records.target = Some(value.to_vec()),
            b"size" => records.size = Some(whole()?),
            b"uid" => records.uid = Some(whole()?),
            b"gid" => records.gid = Some(whole()?),
            b"mtime" => records.seconds = Some(whole_seconds(value).ok_or_else(wrong)?),
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    records.attributes.push((name.to_vec(), value.to_vec()));
                } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    records.add_sparse(key, value)?;
                }
            }
        }
        text = &text[length..];
    }
    Ok(())
}

/// `1700000000.123`: the part behind the point says nothing that a layer needs.
fn whole_seconds(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.split('.').next()?.parse().ok()
}

fn check_sum(block: &[u8; BLOCK]) -> Result<(), Error> {
    let wrong = || Error::new("this is no tar, or it is damaged: a checksum is wrong");
    let wanted = number(&block[148..156], "checksum").map_err(|_| wrong())?;
    let sum = |value: fn(u8) -> i64| -> i64 {
        block.iter().enumerate().map(|(at, &byte)| if (148..156).contains(&at) { 32 } else { value(byte) }).sum()
    };
    // Some old programs add up signed bytes.
    if sum(i64::from) == wanted as i64 || sum(|byte| i64::from(byte as i8)) == wanted as i64 {
        return Ok(());
    }
    Err(wrong())
}

/// Octal digits, or base 256 where the first bit is set. Negative ones are refused.
fn number(field: &[u8], what: &str) -> Result<u64, Error> {
    let wrong = || Error::new(format!("a {what} is not a number in range"));
    if field[0] & 0x80 != 0 {
        if field[0] & 0x40 != 0 {
            return Err(wrong());
        }
        let first = u64::from(field[0] & 0x3f);
        return field[1..]
            .iter()
            .try_fold(first, |sum, &byte| sum.checked_mul(256).map(|sum| sum | u64::from(byte)).ok_or_else(wrong));
    }
    let digits = until_nul(field);
    let text = std::str::from_utf8(digits).map_err(|_| wrong())?.trim_matches(' ');
    if text.is_empty() {
        return Ok(0);
    }
    // `from_str_radix` takes a sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    u64::from_str_radix(text, 8).map_err(|_| wrong())
}

/// A time that cannot be read is 0.
fn seconds(field: &[u8]) -> i64 {
    number(field, "time").map_or(0, |value| value.min(SECONDS_MAX as u64) as i64)
}

fn until_nul(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or(field)
}

pub fn refused(path: &[u8], why: &str) -> Error {
    Error::new(format!("{} {why}", String::from_utf8_lossy(path)))
}

/// The error of an entry that cannot be made for a reason outside of the archive.
pub fn unmade(path: &[u8], what: &str, error: io::Error) -> Error {
    Error::with(Code::of(&error), format!("{} {what}: {error}", String::from_utf8_lossy(path)))
}

pub fn too_many(path: &[u8], what: &str) -> Error {
    Error::with(Code::TooLarge, format!("{} {what}", String::from_utf8_lossy(path)))
}

fn failed(error: io::Error) -> Error {
    Error::with(Code::of(&error), error.to_string())
}

fn cut_off() -> Error {
    Error::new("the archive is cut off")
}
