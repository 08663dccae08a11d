//! Files with holes, in the old form of GNU tar and in version 1.0 of that of pax, which bsdtar writes too (GNU tar manual, "Storing Sparse
//! Files"). An archive of a hundred bytes can hold a file of any size, so whoever reads one bounds its size, and skips its holes.

use std::collections::VecDeque;
use std::io::{self, Read};

use crate::{number, refused, Records, Tar, BLOCK};
use sys::Error;

const EXTENTS_MAX: usize = 1 << 16;
/// Of a number in a map.
const DIGITS_MAX: usize = 20;
/// An extent in a header: two numbers of 12 bytes.
const EXTENT_BYTES: usize = 24;

/// Where a reader of the file stands, and the data that is still to come.
pub struct Sparse {
    /// Start and end of each.
    extents: VecDeque<(u64, u64)>,
    position: u64,
    size: u64,
}

impl Sparse {
    /// `stored`: bytes of data in the archive, to which the extents must add up.
    fn new(extents: Vec<(u64, u64)>, size: u64, stored: u64, path: &[u8]) -> Result<Sparse, Error> {
        let wrong = || refused(path, "has a damaged map of its holes");
        let (mut reached, mut data) = (0, 0);
        let mut checked = VecDeque::new();
        for (start, length) in extents {
            let end = start.checked_add(length).filter(|end| *end <= size).ok_or_else(wrong)?;
            if start < reached {
                return Err(wrong());
            }
            reached = end;
            data += length;
            if length > 0 {
                checked.push_back((start, end));
            }
        }
        match data == stored {
            true => Ok(Sparse { extents: checked, position: 0, size }),
            false => Err(wrong()),
        }
    }

    /// Bytes of zero from here on.
    pub fn hole(&self) -> u64 {
        self.extents.front().map_or(self.size, |(start, _)| *start).saturating_sub(self.position)
    }

    /// Bytes of data from here on.
    pub fn data(&self) -> u64 {
        self.extents.front().map_or(0, |(_, end)| end - self.position)
    }

    pub fn pass(&mut self, count: u64) {
        self.position += count;
        if self.extents.front().map_or(false, |(_, end)| *end == self.position) {
            self.extents.pop_front();
        }
    }
}

impl<R: Read> Tar<R> {
    /// The map in a header of type `S`, and in the blocks behind it.
    pub(crate) fn old_sparse(&mut self, block: &[u8; BLOCK], stored: u64, path: &[u8]) -> Result<Sparse, Error> {
        let size = number(&block[483..495], "size")?;
        let mut extents = Vec::new();
        let mut add = |fields: &[u8]| -> Result<(), Error> {
            for extent in fields.chunks(EXTENT_BYTES).filter(|extent| extent[0] != 0) {
                extents.push((number(&extent[..12], "offset")?, number(&extent[12..], "length")?));
            }
            match extents.len() > EXTENTS_MAX {
                true => Err(refused(path, "has too many holes")),
                false => Ok(()),
            }
        };
        add(&block[386..482])?;
        let mut has_more = block[482] != 0;
        while has_more {
            let next = self.block()?.ok_or_else(crate::cut_off)?;
            add(&next[..504])?;
            has_more = next[504] != 0;
        }
        Sparse::new(extents, size, stored, path)
    }

    /// The map in front of the data, as decimal numbers in lines. `self.left` has the bytes of both.
    pub(crate) fn pax_sparse(&mut self, records: &SparseRecords, path: &[u8]) -> Result<Sparse, Error> {
        let wrong = || refused(path, "has a damaged map of its holes");
        if (records.major, records.minor) != (Some(1), Some(0)) {
            return Err(refused(path, "is a sparse file in an old form of pax, which is not read"));
        }
        let size = records.size.ok_or_else(wrong)?;
        let (mut numbers, mut digits, mut wanted) = (Vec::new(), Vec::new(), 1);
        while numbers.len() < wanted {
            self.left = self.left.checked_sub(BLOCK as u64).ok_or_else(wrong)?;
            for byte in self.block()?.ok_or_else(crate::cut_off)? {
                match byte {
                    _ if numbers.len() == wanted => break,
                    b'\n' => {
                        let text = std::str::from_utf8(&digits).map_err(|_| wrong())?;
                        numbers.push(text.parse::<u64>().map_err(|_| wrong())?);
                        digits.clear();
                    }
                    b'0'..=b'9' if digits.len() < DIGITS_MAX => digits.push(byte),
                    _ => return Err(wrong()),
                }
                if numbers.len() == 1 && wanted == 1 {
                    let count = usize::try_from(numbers[0]).ok().filter(|count| *count <= EXTENTS_MAX);
                    wanted += 2 * count.ok_or_else(|| refused(path, "has too many holes"))?;
                }
            }
        }
        let extents = numbers[1..].chunks(2).map(|pair| (pair[0], pair[1])).collect();
        Sparse::new(extents, size, self.left, path)
    }
}

/// What the records of pax say about a sparse file.
#[derive(Default)]
pub struct SparseRecords {
    pub major: Option<u64>,
    pub minor: Option<u64>,
    pub size: Option<u64>,
    /// The record `path` has a made-up name.
    pub path: Option<Vec<u8>>,
}

impl Records {
    /// A record `GNU.sparse.KEY`.
    pub(crate) fn add_sparse(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let records = self.sparse.get_or_insert_with(SparseRecords::default);
        let whole = || std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        let wrong = || Error::new("a record of a header is damaged");
        match key {
            b"major" => records.major = Some(whole().ok_or_else(wrong)?),
            b"minor" => records.minor = Some(whole().ok_or_else(wrong)?),
            b"realsize" => records.size = Some(whole().ok_or_else(wrong)?),
            b"name" => records.path = Some(value.to_vec()),
            // Of older versions, which have no `major`.
            _ => {}
        }
        Ok(())
    }
}

/// Reads a sparse file: holes as zeros.
pub fn read(
    sparse: &mut Sparse,
    into: &mut [u8],
    data: impl FnOnce(&mut [u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    let hole = sparse.hole();
    let room = into.len() as u64;
    let count = if hole > 0 {
        let count = hole.min(room) as usize;
        into[..count].fill(0);
        count
    } else {
        let count = sparse.data().min(room) as usize;
        if count == 0 {
            return Ok(0);
        }
        data(&mut into[..count])?
    };
    sparse.pass(count as u64);
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_zeros_and_data_lies_where_it_was_in_pieces_of_any_length() {
        for piece in 1..12 {
            let mut sparse = Sparse::new(vec![(3, 4), (7, 2), (20, 1), (25, 0)], 25, 7, b"x").unwrap();
            let (mut data, mut out, mut into) = (&b"abcdefg"[..], Vec::new(), vec![9; piece]);
            loop {
                let count = read(&mut sparse, &mut into, |into| data.read(into)).unwrap();
                if count == 0 {
                    break;
                }
                out.extend_from_slice(&into[..count]);
            }
            assert_eq!(out, b"\0\0\0abcdef\0\0\0\0\0\0\0\0\0\0\0g\0\0\0\0");
        }
    }

    #[test]
    fn a_map_that_goes_back_or_out_of_the_file_is_refused() {
        for (extents, size, stored) in [
            (vec![(5, 5), (0, 5)], 10, 10),
            (vec![(0, 5), (4, 5)], 10, 10),
            (vec![(5, 6)], 10, 6),
            (vec![(u64::MAX, 2)], 10, 2),
            (vec![(0, 5)], 10, 6),
            (vec![], 10, 1),
        ] {
            assert!(Sparse::new(extents, size, stored, b"x").is_err());
        }
        assert!(Sparse::new(vec![(10, 0)], 10, 0, b"x").is_ok());
    }
}
