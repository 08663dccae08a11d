//! File systems: what kind one is of, and what of it is free.

use crate::done;
use crate::libc::{self, c_int, StatFs};
use std::fs::File;
use std::io;
use std::os::unix::io::AsRawFd;

/// The types of statfs(2): btrfs, ext2 to ext4, XFS, F2FS, ZFS, overlayfs, tmpfs, ramfs.
const TRUE_SIZES: [u32; 8] =
    [0x9123_683E, 0xEF53, 0x5846_5342, 0xF2F5_2010, 0x2FC1_2FC1, 0x794C_7630, 0x0102_1994, 0x8584_58F6];

/// Whether a file's size is what a reader gets. An unknown file system may make the content of a file at each read.
pub fn has_true_sizes(file: &File) -> bool {
    status(file).map_or(false, |found| TRUE_SIZES.contains(&(found.kind as u32)))
}

/// Bytes that programs without privileges can still write to the file system of a file.
pub fn available_bytes(file: &impl AsRawFd) -> io::Result<u64> {
    status(file).map(|found| found.block_bytes as u64 * found.available_blocks)
}

/// Gives a range of a file its blocks, and leaves its content and its length as they are.
pub fn allocate(file: &impl AsRawFd, start: u64, length: u64) -> io::Result<()> {
    const FALLOC_FL_KEEP_SIZE: c_int = 1;
    // SAFETY: the descriptor is open while `file` is borrowed, and the call takes numbers alone.
    done(unsafe { libc::fallocate(file.as_raw_fd(), FALLOC_FL_KEEP_SIZE, start as i64, length as i64) })
}

fn status(file: &impl AsRawFd) -> io::Result<StatFs> {
    let mut found = StatFs { kind: 0, block_bytes: 0, blocks: 0, free_blocks: 0, available_blocks: 0, rest: [0; 10] };
    // SAFETY: the kernel writes a `struct statfs`.
    done(unsafe { libc::fstatfs(file.as_raw_fd(), &mut found) })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_proc_and_sysfs_are_made_up_and_those_of_a_disk_are_not() {
        assert!(!has_true_sizes(&File::open("/proc/version").unwrap()));
        assert!(!has_true_sizes(&File::open("/sys/kernel/mm/transparent_hugepage/enabled").unwrap()));
        assert!(has_true_sizes(&File::open(std::env::current_exe().unwrap()).unwrap()));
    }
}
