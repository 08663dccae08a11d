//! Folders by descriptor: operations below one stay on its file system and follow no link.

use crate::libc::{self, c_int, OpenHow, AT_REMOVEDIR, O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_PATH};
use crate::libc::{RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV};
use crate::{done, owned};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::mem::size_of;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

pub struct Folder(OwnedFd);

impl From<OwnedFd> for Folder {
    fn from(fd: OwnedFd) -> Folder {
        Folder(fd)
    }
}

impl From<Folder> for OwnedFd {
    fn from(folder: Folder) -> OwnedFd {
        folder.0
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
        self.open_below(name, O_DIRECTORY, 0).map(Folder)
    }

    /// Like `below` for a path whose links and `..` are followed, with this folder as the root.
    pub fn below_as_root(&self, path: &OsStr) -> io::Result<Folder> {
        let resolve = RESOLVE_IN_ROOT | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS;
        open(self.raw(), path, O_DIRECTORY, 0, resolve).map(Folder)
    }

    /// Opens an entry without a step onto another mount, over a link or upwards.
    pub(crate) fn open_below(&self, path: &OsStr, flags: c_int, mode: u64) -> io::Result<OwnedFd> {
        open(self.raw(), path, flags, mode, RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH)
    }

    /// Opens what an absolute path leads to with this folder as the root, over links and mounts, without the right to read it.
    pub fn resolve(&self, path: &OsStr) -> io::Result<File> {
        open(self.raw(), path, O_PATH, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS).map(File::from)
    }

    /// The same over mounts alone. ELOOP where the path has a link.
    pub fn resolve_strictly(&self, path: &OsStr) -> io::Result<File> {
        open(self.raw(), path, O_PATH | O_NOFOLLOW, 0, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS).map(File::from)
    }

    /// Opens an entry over mounts, without a step over a link or upwards.
    pub(crate) fn open_over(&self, path: &OsStr, flags: c_int) -> io::Result<File> {
        open(self.raw(), path, flags, 0, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH).map(File::from)
    }

    pub fn names(&self) -> io::Result<Vec<OsString>> {
        fs::read_dir(self.path())?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    /// Gives an unnamed file of the same file system a name. EEXIST.
    pub fn link(&self, file: &fs::File, name: &OsStr) -> io::Result<()> {
        let path = c_name(OsStr::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
        let name = c_name(name)?;
        let flags = libc::AT_SYMLINK_FOLLOW;
        // SAFETY: both strings end with NUL and live as long as this call.
        done(unsafe { libc::linkat(libc::AT_FDCWD, path.as_ptr(), self.raw(), name.as_ptr(), flags) })
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
        crate::mounts::detach_at(&path)
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn unlink_at(&self, name: &OsStr, flags: c_int) -> io::Result<()> {
        let name = c_name(name)?;
        // SAFETY: the name ends with NUL and lives as long as this call.
        done(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), flags) })
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// Of one opening, on a machine that renames and mounts without end.
const ATTEMPTS_MAX: u32 = 100;

/// Opens a file, but not through a link of `/proc/PID/fd` (ELOOP): the kernel lets every thread of a process follow the links of the
/// process, to what other operations have open as another user. ENOSYS before Linux 5.6.
pub fn open_strictly(path: &Path, flags: c_int) -> io::Result<File> {
    open(libc::AT_FDCWD, path.as_os_str(), flags, 0, RESOLVE_NO_MAGICLINKS).map(File::from)
}

fn open(folder: RawFd, path: &OsStr, flags: c_int, mode: u64, resolve: u64) -> io::Result<OwnedFd> {
    let path = c_name(path)?;
    let how = OpenHow { flags: (flags | O_CLOEXEC) as u64, mode, resolve };
    let size = size_of::<OpenHow>();
    for attempt in 1.. {
        // SAFETY: the path ends with NUL, the structure has the given size, and the result is a new descriptor.
        let opened =
            unsafe { owned(libc::syscall(libc::SYS_OPENAT2, folder, path.as_ptr(), &how as *const OpenHow, size)) };
        // While `..` was followed something was renamed or mounted, anywhere on the machine: try again (openat2(2), EAGAIN).
        match opened {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && attempt < ATTEMPTS_MAX => continue,
            done => return done,
        }
    }
    unreachable!()
}

pub(crate) fn c_name(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
