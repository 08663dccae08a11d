//! System calls that std lacks, each behind a safe function. All `unsafe` of the guest and hostd is here, but for some tests. Functions
//! that only hostd uses answer with an `Error` that names the object of the failed call.

#![warn(clippy::undocumented_unsafe_blocks)]

pub mod channel;
mod child;
pub mod entry;
pub mod epoll;
mod error;
mod filesystem;
pub mod folder;
pub mod inotify;
mod libc;
mod machine;
mod mounts;
mod namespaces;
pub mod netlink;
pub mod pidfd;
pub mod poll;
mod process;
mod rights;
mod signals;
pub mod socket;
mod terminal;

pub use child::{join_groups, lead_own_group, raise_file_limit, ChildSetup, FAULT_CWD, FAULT_USER};
pub use error::{Code, Error, TooLarge};
pub use filesystem::{allocate, available_bytes, has_true_sizes};
pub use folder::open_strictly;
pub use libc::{
    FileLimit, EAGAIN, EBUSY, ECONNREFUSED, EDQUOT, EINVAL, EISDIR, ELOOP, ENOBUFS, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY,
    ENOTTY, EOPNOTSUPP, EOVERFLOW, EPERM, EROFS, ESRCH, ETIMEDOUT, EXDEV, O_DIRECTORY, O_NOCTTY, O_NOFOLLOW,
    O_NONBLOCK, O_PATH, O_TMPFILE,
};
pub use machine::{add_entropy, since_boot};
pub use mounts::*;
pub use namespaces::*;
pub use poll::{poll, set_nonblocking, unread_bytes, Event, PollFd, POLLERR, POLLHUP, POLLIN, POLLOUT};
pub use process::{listening_port, process_group, robust_list};
pub use rights::{act_as, acting_as, file_uid, hold_acting};
pub use signals::*;
pub use terminal::{open_terminal, resize_terminal};

use libc::{c_int, c_long, c_uint, c_ulong};
use std::ffi::{CStr, CString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// The result of a system call that is negative when it has failed.
fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// The result of a system call that returns 0 when it has worked.
fn done(status: c_int) -> io::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Like `done`; the error names the call and its object.
fn checked(status: c_long, what: &str, subject: impl fmt::Display) -> Result<(), Error> {
    match status {
        0 => Ok(()),
        _ => Err(Error::last(what, subject)),
    }
}

/// The result of a system call that makes a descriptor.
///
/// # Safety
///
/// A `result` that is not negative must be a new descriptor, which nothing else closes.
unsafe fn owned(result: c_long) -> io::Result<OwnedFd> {
    check(result as c_int).map(|fd| OwnedFd::from_raw_fd(fd))
}

pub fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::new(format!("path {} holds a NUL byte", path.display())))
}

/// Removes an extended attribute of `path`, which may be a symbolic link. Harmless when there is none.
pub fn remove_attribute(path: &CStr, name: &CStr) -> io::Result<()> {
    // SAFETY: both strings end with NUL and live as long as this call.
    match done(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) }) {
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
        result => result,
    }
}

/// Exchanges two paths of one file system atomically.
pub fn exchange(one: &Path, other: &Path) -> Result<(), Error> {
    const RENAME_EXCHANGE: c_uint = 2;
    let (one_c, other_c) = (c_path(one)?, c_path(other)?);
    let at = libc::AT_FDCWD;
    // SAFETY: both strings end with NUL and live as long as this call.
    let status = unsafe { libc::renameat2(at, one_c.as_ptr(), at, other_c.as_ptr(), RENAME_EXCHANGE) };
    checked(status.into(), &format!("exchange {} with", one.display()), other.display())
}

/// Renames an entry unless the new name is taken (EEXIST). EINVAL where the file system cannot tell.
pub fn rename_new(one: &Path, other: &Path) -> io::Result<()> {
    const RENAME_NOREPLACE: c_uint = 1;
    let (one, other) = (folder::c_name(one.as_os_str())?, folder::c_name(other.as_os_str())?);
    let at = libc::AT_FDCWD;
    // SAFETY: both strings end with NUL and live as long as this call.
    done(unsafe { libc::renameat2(at, one.as_ptr(), at, other.as_ptr(), RENAME_NOREPLACE) })
}

/// An ioctl(2) that takes a structure; `request` encodes the size of `Args`.
pub fn control<Args>(
    file: &impl AsRawFd,
    request: u64,
    args: &mut Args,
    what: &str,
    subject: impl fmt::Display,
) -> Result<(), Error> {
    try_control(file, request, args).map_err(|error| Error::io(what, subject, error))
}

/// The same with the error of the kernel alone.
pub fn try_control<Args>(file: &impl AsRawFd, request: u64, args: &mut Args) -> io::Result<()> {
    // SAFETY: the structure lives as long as this call, and has the size that tests compare with the request's.
    done(unsafe { libc::ioctl(file.as_raw_fd(), request as c_ulong, args as *mut Args) })
}

pub fn set_close_on_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: of this command the argument is a number.
    done(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })
}

pub fn fchown(fd: &impl AsRawFd, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: the call has no pointers.
    done(unsafe { libc::fchown(fd.as_raw_fd(), uid, gid) })
}

pub fn effective_uid() -> u32 {
    // SAFETY: the call has no pointers.
    unsafe { libc::geteuid() }
}

pub fn umask(mask: u32) -> u32 {
    // SAFETY: the call has no pointers.
    unsafe { libc::umask(mask) }
}

/// One allocation arena: many threads with one arena each would hold on to much more memory than they use.
pub fn use_one_arena() {
    const M_ARENA_MAX: c_int = -8;
    // SAFETY: the call has no pointers.
    unsafe { libc::mallopt(M_ARENA_MAX, 1) };
}

pub fn malloc_trim() {
    // SAFETY: the call has no pointers.
    unsafe { libc::malloc_trim(0) };
}
