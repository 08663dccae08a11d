//! Opens the targets of links with the rights of the thread.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::io::AsRawFd;
use std::path::{Path, PathBuf};

const ENOSYS: i32 = 38;

/// The metadata of the target of links.
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    match sys::file_uid() {
        0 => fs::metadata(path),
        _ => open(path, sys::O_PATH)?.metadata(),
    }
}

/// Opens for reading, with further flags of open(2). The kernel lets every thread of the guest follow the links of `/proc/PID/fd` to
/// what other operations have open as another user, so an operation of a user follows none of them (ELOOP).
pub fn open(path: &Path, flags: i32) -> io::Result<File> {
    let plainly = || OpenOptions::new().read(true).custom_flags(flags).open(path);
    match sys::file_uid() {
        0 => plainly(),
        _ => sys::open_strictly(path, flags).or_else(|error| match error.raw_os_error() {
            Some(ENOSYS) => plainly(),
            _ => Err(error),
        }),
    }
}

/// A path through an open file stays valid when its parents are renamed.
pub fn name_of(file: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The mode of a file that takes the place of another: rights of the old owner are not given to a new one.
pub fn kept_mode(file: &File, old: &Metadata) -> io::Result<u32> {
    let mode = old.mode() & 0o7777;
    let now = file.metadata()?;
    Ok(if (now.uid(), now.gid()) == (old.uid(), old.gid()) { mode } else { mode & 0o1777 })
}
