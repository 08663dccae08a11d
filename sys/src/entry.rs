//! Opens and makes entries of a folder by name, without following a link or crossing a mount.

use crate::done;
use crate::folder::{c_name, Folder};
use crate::libc::{self, TimeSpec, AT_SYMLINK_NOFOLLOW, EISDIR, ELOOP, ENOENT, ENXIO};
use crate::libc::{O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDWR, O_WRONLY};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::io::AsRawFd;

pub const S_IFIFO: u32 = 0o010000;
pub const S_IFCHR: u32 = 0o020000;
const LINK_BYTES_MAX: usize = 4096;

impl Folder {
    /// Opens an entry, a link itself, without the right to read it. `path` has no link and no `..` in it.
    pub fn look(&self, path: &OsStr) -> io::Result<File> {
        self.open_below(path, O_PATH | O_NOFOLLOW, 0).map(File::from)
    }

    /// The same of what is mounted on the entry, if anything is.
    pub fn look_over(&self, name: &OsStr) -> io::Result<File> {
        self.open_over(name, O_PATH | O_NOFOLLOW)
    }

    /// Opens a file to be read, also one that is of another mount than the folder.
    pub fn read(&self, path: &OsStr) -> io::Result<File> {
        self.open_over(path, 0)
    }

    pub fn folder(&self, path: &OsStr) -> io::Result<Folder> {
        self.open_below(path, O_DIRECTORY, 0).map(Folder::from)
    }

    /// A new file, to be written. EEXIST.
    pub fn create(&self, name: &OsStr) -> io::Result<File> {
        self.open_below(name, O_CREAT | O_EXCL | O_WRONLY, 0o600).map(File::from)
    }

    /// An existing regular file, to be read and written. `None` for a name of anything else, or of nothing.
    pub fn open_file(&self, name: &OsStr) -> io::Result<Option<File>> {
        match self.open_below(name, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0).map(File::from) {
            Ok(file) => Ok(Some(file).filter(|file| file.metadata().map_or(false, |metadata| metadata.is_file()))),
            Err(error) if matches!(error.raw_os_error(), Some(ENOENT | ENXIO | EISDIR | ELOOP)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The target of a link.
    pub fn read_link(&self, name: &OsStr) -> io::Result<OsString> {
        let name = c_name(name)?;
        let mut target = vec![0u8; LINK_BYTES_MAX];
        // SAFETY: the kernel writes at most as many bytes as the buffer has.
        let count = unsafe { libc::readlinkat(self.raw(), name.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        target.truncate(count as usize);
        Ok(OsString::from_vec(target))
    }

    pub fn make_folder(&self, name: &OsStr) -> io::Result<Folder> {
        let name_c = c_name(name)?;
        // SAFETY: the name ends with NUL and lives as long as this call.
        done(unsafe { libc::mkdirat(self.raw(), name_c.as_ptr(), 0o700) })?;
        self.folder(name)
    }

    /// A node of a type such as `S_IFIFO`; of a device it has the number 0.
    pub fn make_node(&self, name: &OsStr, kind: u32) -> io::Result<()> {
        let name = c_name(name)?;
        // SAFETY: the name ends with NUL and lives as long as this call.
        done(unsafe { libc::mknodat(self.raw(), name.as_ptr(), kind | 0o600, 0) })
    }

    pub fn make_link(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        let (target, name) = (c_name(target)?, c_name(name)?);
        // SAFETY: both names end with NUL and live as long as this call.
        done(unsafe { libc::symlinkat(target.as_ptr(), self.raw(), name.as_ptr()) })
    }

    /// A second name for an entry of another folder, which may be a link.
    pub fn make_hard_link(&self, name: &OsStr, from: &Folder, source: &OsStr) -> io::Result<()> {
        let (source, name) = (c_name(source)?, c_name(name)?);
        // SAFETY: both names end with NUL and live as long as this call.
        done(unsafe { libc::linkat(from.raw(), source.as_ptr(), self.raw(), name.as_ptr(), 0) })
    }

    pub fn give(&self, name: &OsStr, uid: u32, gid: u32) -> io::Result<()> {
        let name = c_name(name)?;
        // SAFETY: the name ends with NUL and lives as long as this call.
        done(unsafe { libc::fchownat(self.raw(), name.as_ptr(), uid, gid, AT_SYMLINK_NOFOLLOW) })
    }

    /// `name` must be no link: a link would be followed.
    pub fn change_mode(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        let name = c_name(name)?;
        // SAFETY: the name ends with NUL and lives as long as this call.
        done(unsafe { libc::fchmodat(self.raw(), name.as_ptr(), mode, 0) })
    }

    /// Both times of an entry; seconds since 1970.
    pub fn date(&self, name: &OsStr, seconds: i64, nanoseconds: i64) -> io::Result<()> {
        let name = c_name(name)?;
        let times = [TimeSpec { seconds, nanoseconds }; 2];
        // SAFETY: the name ends with NUL, and the kernel reads two `struct timespec`.
        done(unsafe { libc::utimensat(self.raw(), name.as_ptr(), &times, AT_SYMLINK_NOFOLLOW) })
    }
}

pub fn change_file_mode(file: &impl AsRawFd, mode: u32) -> io::Result<()> {
    // SAFETY: the call has no pointers.
    done(unsafe { libc::fchmod(file.as_raw_fd(), mode) })
}

pub fn set_attribute(file: &impl AsRawFd, name: &[u8], value: &[u8]) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: the name ends with NUL, and the length is that of the value.
    done(unsafe { libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
}

/// The names of the extended attributes of a file. A list of more than `most` bytes is ERANGE.
pub fn attribute_names(file: &impl AsRawFd, most: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut names = vec![0u8; most];
    // SAFETY: the kernel writes at most as many bytes as the buffer has.
    let count = unsafe { libc::flistxattr(file.as_raw_fd(), names.as_mut_ptr().cast(), names.len()) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    names.truncate(count as usize);
    Ok(names.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

/// The value of an extended attribute. One of more than `most` bytes is ERANGE.
pub fn attribute(file: &impl AsRawFd, name: &[u8], most: usize) -> io::Result<Vec<u8>> {
    let name = CString::new(name)?;
    let mut value = vec![0u8; most];
    // SAFETY: the name ends with NUL, and the kernel writes at most as many bytes as the buffer has.
    let count = unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    value.truncate(count as usize);
    Ok(value)
}

pub fn has_attribute(file: &impl AsRawFd, name: &[u8], value: &[u8]) -> bool {
    let name = CString::new(name).expect("constant");
    let mut found = vec![0u8; value.len() + 1];
    // SAFETY: the name ends with NUL, and the kernel writes at most as many bytes as the buffer has.
    let count = unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), found.as_mut_ptr().cast(), found.len()) };
    count >= 0 && &found[..count as usize] == value
}
