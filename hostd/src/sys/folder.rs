//! Folders by descriptor: operations below one stay on its file system and follow no link.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::mem::size_of;
use std::os::raw::{c_char, c_int, c_long};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn linkat(from: c_int, path: *const c_char, to: c_int, name: *const c_char, flags: c_int) -> c_int;
    fn unlinkat(folder: c_int, name: *const c_char, flags: c_int) -> c_int;
}

/// The same on every architecture (asm-generic/unistd.h).
pub(super) const SYS_OPENAT2: c_long = 437;
pub(super) const RESOLVE_NO_XDEV: u64 = 0x01;
pub(super) const RESOLVE_NO_SYMLINKS: u64 = 0x04;
pub(super) const RESOLVE_BENEATH: u64 = 0x08;
pub(super) const O_CLOEXEC: u64 = 0o2000000;
/// Of x86_64 and of the generic table differ.
#[cfg(target_arch = "aarch64")]
pub(super) const O_DIRECTORY: u64 = 0o40000;
#[cfg(not(target_arch = "aarch64"))]
pub(super) const O_DIRECTORY: u64 = 0o200000;
const AT_FDCWD: c_int = -100;
const AT_REMOVEDIR: c_int = 0x200;
const AT_SYMLINK_FOLLOW: c_int = 0x400;

/// Of openat2(2).
#[repr(C)]
pub(super) struct OpenHow {
    pub flags: u64,
    pub mode: u64,
    pub resolve: u64,
}

pub struct Folder(OwnedFd);

impl From<OwnedFd> for Folder {
    fn from(fd: OwnedFd) -> Folder {
        Folder(fd)
    }
}

impl AsRawFd for Folder {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Folder {
    /// The path may lead over links and mounts.
    pub fn open(path: &Path) -> io::Result<Folder> {
        fs::File::open(path).map(|file| Folder(OwnedFd::from(file)))
    }

    /// EXDEV where something is mounted there, of the same file system or of another; ENOTDIR or ELOOP where it is no folder.
    pub fn below(&self, name: &OsStr) -> io::Result<Folder> {
        let name = c_name(name)?;
        let how = OpenHow {
            flags: O_DIRECTORY | O_CLOEXEC,
            mode: 0,
            resolve: RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH,
        };
        let fd = unsafe {
            syscall(SYS_OPENAT2, self.0.as_raw_fd(), name.as_ptr(), &how as *const OpenHow, size_of::<OpenHow>())
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Folder(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    pub fn names(&self) -> io::Result<Vec<OsString>> {
        fs::read_dir(self.path())?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    /// Gives an unnamed file of the same file system a name. EEXIST.
    pub fn link(&self, file: &fs::File, name: &OsStr) -> io::Result<()> {
        let path = c_name(OsStr::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
        let name = c_name(name)?;
        let status = unsafe { linkat(AT_FDCWD, path.as_ptr(), self.0.as_raw_fd(), name.as_ptr(), AT_SYMLINK_FOLLOW) };
        super::done(status)
    }

    /// EISDIR for a folder, EBUSY where something is mounted on it.
    pub fn unlink(&self, name: &OsStr) -> io::Result<()> {
        self.unlink_at(name, 0)
    }

    /// ENOTEMPTY, or EBUSY where something is mounted on it.
    pub fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        self.unlink_at(name, AT_REMOVEDIR)
    }

    /// Detaches the top mount of an entry with all mounts below it; it ends with its last user.
    pub fn unmount(&self, name: &OsStr) -> io::Result<()> {
        let mut path = self.path().into_bytes();
        path.push(b'/');
        path.extend_from_slice(name.as_bytes());
        let path = c_name(&OsString::from_vec(path))?;
        super::detach_at(&path)
    }

    pub(super) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn unlink_at(&self, name: &OsStr, flags: c_int) -> io::Result<()> {
        let name = c_name(name)?;
        super::done(unsafe { unlinkat(self.0.as_raw_fd(), name.as_ptr(), flags) })
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

pub(super) fn c_name(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
