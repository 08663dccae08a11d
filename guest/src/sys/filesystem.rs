//! What kind of file system a file is on.

use std::fs::File;
use std::os::raw::{c_int, c_long};
use std::os::unix::io::AsRawFd;

/// Of statfs(2): btrfs, ext2 to ext4, XFS, F2FS, ZFS, overlayfs, tmpfs, ramfs.
const TRUE_SIZES: [u32; 8] =
    [0x9123_683E, 0xEF53, 0x5846_5342, 0xF2F5_2010, 0x2FC1_2FC1, 0x794C_7630, 0x0102_1994, 0x8584_58F6];

/// `struct statfs`: its type comes first, and all of it has 120 bytes.
#[repr(C)]
struct StatFs {
    kind: c_long,
    rest: [u64; 31],
}

extern "C" {
    fn fstatfs(fd: c_int, buffer: *mut StatFs) -> c_int;
}

/// Whether a file's size is what a reader gets. A file system that is not known here makes its files up when they are read.
pub fn has_true_sizes(file: &File) -> bool {
    let mut found = StatFs { kind: 0, rest: [0; 31] };
    // SAFETY: the kernel writes within the buffer, which is larger than its structure.
    let result = unsafe { fstatfs(file.as_raw_fd(), &mut found) };
    result == 0 && TRUE_SIZES.contains(&(found.kind as u32))
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
