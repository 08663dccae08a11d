//! The reserve of the pool: gives the sparse file of a btrfs blocks of the file system below, before btrfs writes to them.
//!
//! A write that btrfs has accepted fails later, and is lost, if the file gets no block for it. So two parts of the file get blocks: each
//! extent that btrfs has allocated on its device (a chunk), and the lowest free space of the device, which btrfs allocates next.

mod ranges;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::protocol::fields::Fields;
use ranges::{holes_of, Ranges};
use sys::Error;

/// `_IOWR(0x94, 17, struct btrfs_ioctl_search_args)`.
const TREE_SEARCH: u64 = 0xd000_9411;
/// `_IOWR(0x94, 30, struct btrfs_ioctl_dev_info_args)`.
const DEV_INFO: u64 = 0xd000_941e;
/// `_IOWR('f', 11, struct fiemap)`.
const FIEMAP: u64 = 0xc020_660b;
const DEVICE: u64 = 1;
const DEV_TREE: u64 = 4;
const DEV_EXTENT: u32 = 204;
const MAPPED_LAST: u32 = 1;

/// btrfs allocates nothing below this.
const DEVICE_START: u64 = 1 << 20;
const SUPERBLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const SUPERBLOCK_BYTES: u64 = 4096;
/// Bytes that are allocated between two looks at the free space below.
const STEP_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub struct Reserve {
    pool: PathBuf,
    file: PathBuf,
    ahead: u64,
    chunk: u64,
    leave: u64,
}

impl Reserve {
    pub fn from_fields(fields: &mut Fields) -> Result<Reserve, Error> {
        Ok(Reserve {
            pool: fields.path("pool")?,
            file: fields.path("file")?,
            ahead: fields.number("aheadBytes")?,
            chunk: fields.number("chunkBytes")?,
            leave: fields.number("leaveBytes")?,
        })
    }
}

/// Answers five numbers of bytes: of chunks without blocks; of the free space for the largest chunks up to its first gap; of all that
/// space; of all free space of the device; of the blocks in free space beyond those wanted. Blocks are allocated while more than `leave`
/// bytes stay free below.
pub fn reserve(Reserve { pool, file, ahead, chunk, leave }: Reserve) -> Result<String, Error> {
    let mount = File::open(&pool).map_err(|error| Error::io("open", pool.display(), error))?;
    let below = OpenOptions::new().write(true).open(&file).map_err(|error| Error::io("open", file.display(), error))?;
    let end = device_bytes(&mount, &pool)?;
    let chunks = chunks_of(&mount, &pool)?;
    let holes = holes_of(&chunks, DEVICE_START, end);
    let mut mapped = mapped_of(&below).map_err(|error| Error::io("map", file.display(), error))?;
    let superblocks = SUPERBLOCKS.iter().filter(|&&at| at + SUPERBLOCK_BYTES <= end).map(|&at| (at, SUPERBLOCK_BYTES));
    // btrfs puts a chunk into the lowest hole that it fits in: a large chunk into a large hole, a small one into any.
    let (large, small): (Vec<_>, Vec<_>) = holes.iter().copied().partition(|&(_, length)| length >= chunk);
    let wanted = superblocks.chain(chunks.iter().copied()).chain(lowest(&large, ahead)).chain(lowest(&small, ahead));
    for (start, length) in wanted {
        for (start, length) in mapped.gaps(start, length) {
            back(&below, start, length, leave, &mut mapped)
                .map_err(|error| Error::io("allocate in", file.display(), error))?;
        }
    }
    let unbacked: u64 = chunks.iter().map(|&(start, length)| length - mapped.bytes_in(start, length)).sum();
    let free: u64 = holes.iter().map(|&(_, length)| length).sum();
    let in_holes: u64 = holes.iter().map(|&(start, length)| mapped.bytes_in(start, length)).sum();
    let first = mapped.prefix_of(&large);
    let large_free: u64 = large.iter().map(|&(_, length)| length).sum();
    let spare = in_holes - first.min(ahead) - mapped.prefix_of(&small).min(ahead);
    Ok(format!("{unbacked} {first} {large_free} {free} {spare}\n"))
}

/// The first `bytes` of some ranges.
fn lowest(holes: &[(u64, u64)], mut bytes: u64) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for &(start, length) in holes {
        let taken = length.min(bytes);
        if taken > 0 {
            found.push((start, taken));
        }
        bytes -= taken;
    }
    found
}

/// Gives a range its blocks, as long as more than `leave` bytes stay free below.
fn back(file: &File, start: u64, length: u64, leave: u64, mapped: &mut Ranges) -> io::Result<()> {
    let mut at = start;
    while at < start + length {
        let step = STEP_BYTES.min(start + length - at);
        if sys::available_bytes(file)? < leave.saturating_add(step) {
            return Ok(());
        }
        match sys::allocate(file, at, step) {
            Ok(()) => mapped.add(at, step),
            Err(error) if error.raw_os_error() == Some(sys::ENOSPC) => return Ok(()),
            Err(error) => return Err(error),
        }
        at += step;
    }
    Ok(())
}

fn device_bytes(mount: &File, pool: &Path) -> Result<u64, Error> {
    // `struct btrfs_ioctl_dev_info_args`: number, uuid, used bytes, all bytes.
    let mut info = [0u64; 512];
    info[0] = DEVICE;
    sys::control(mount, DEV_INFO, &mut info, "tell the device of", pool.display())?;
    Ok(info[4])
}

/// `struct btrfs_ioctl_search_args` of `linux/btrfs.h`, with its key.
#[repr(C)]
struct Search {
    tree: u64,
    objects: [u64; 2],
    offsets: [u64; 2],
    transactions: [u64; 2],
    kinds: [u32; 2],
    count: u32,
    unused: u32,
    unused_more: [u64; 4],
    found: [u8; 3992],
}

/// The extents of the device that belong to chunks, in order, as start and length.
fn chunks_of(mount: &File, pool: &Path) -> Result<Vec<(u64, u64)>, Error> {
    const HEADER_BYTES: usize = 32;
    let mut chunks = Vec::new();
    let mut from = 0;
    loop {
        let mut search = Search {
            tree: DEV_TREE,
            objects: [DEVICE; 2],
            offsets: [from, u64::MAX],
            transactions: [0, u64::MAX],
            kinds: [DEV_EXTENT; 2],
            count: u32::MAX,
            unused: 0,
            unused_more: [0; 4],
            found: [0; 3992],
        };
        sys::control(mount, TREE_SEARCH, &mut search, "list the chunks of", pool.display())?;
        if search.count == 0 {
            return Ok(chunks);
        }
        let number = |at: usize| u64::from_le_bytes(search.found[at..at + 8].try_into().unwrap_or_default());
        let mut at = 0;
        for _ in 0..search.count {
            // The header: transaction, object, offset, kind and length; the item ends with its length and a uuid.
            let start = number(at + 16);
            let item_bytes = (number(at + 24) >> 32) as usize;
            chunks.push((start, number(at + HEADER_BYTES + 24)));
            at += HEADER_BYTES + item_bytes;
            from = start + 1;
        }
    }
}

/// `struct fiemap` with room for its extents.
#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [MapExtent; 512],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct MapExtent {
    start: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_more: [u32; 3],
}

/// The ranges of a file that have blocks or a promise of some. Empty where the file system does not tell: a second allocation is harmless.
fn mapped_of(file: &File) -> io::Result<Ranges> {
    let mut mapped = Ranges::default();
    let mut map = Box::new(Map {
        start: 0,
        length: u64::MAX,
        flags: 0,
        mapped: 0,
        room: 512,
        reserved: 0,
        extents: [MapExtent::default(); 512],
    });
    loop {
        match sys::try_control(file, FIEMAP, map.as_mut()) {
            Ok(()) => {}
            Err(error) if matches!(error.raw_os_error(), Some(sys::EOPNOTSUPP | sys::ENOTTY)) => return Ok(mapped),
            Err(error) => return Err(error),
        }
        let found = &map.extents[..map.mapped as usize];
        for extent in found {
            mapped.add(extent.start, extent.length);
        }
        match found.last() {
            Some(last) if last.flags & MAPPED_LAST == 0 => {
                let end = last.start + last.length;
                map.start = end;
                map.length = u64::MAX - end;
            }
            _ => return Ok(mapped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    #[test]
    fn structures_have_the_sizes_that_the_requests_encode() {
        let encoded = |request: u64| (request >> 16 & 0x3fff) as usize;
        assert_eq!(size_of::<Search>(), encoded(TREE_SEARCH));
        assert_eq!(size_of::<[u64; 512]>(), encoded(DEV_INFO));
        assert_eq!(size_of::<Map>() - 512 * size_of::<MapExtent>(), encoded(FIEMAP));
        assert_eq!(size_of::<MapExtent>(), 56);
    }

    #[test]
    fn the_lowest_bytes_are_taken_from_the_first_holes() {
        assert_eq!(lowest(&[(1, 10), (20, 10)], 15), [(1, 10), (20, 5)]);
        assert_eq!(lowest(&[(1, 10), (20, 10)], 0), []);
    }
}
