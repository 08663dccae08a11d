//! Entries of a folder by name: what is made in one folder, without a link followed or a mount crossed.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::raw::{c_char, c_int, c_long, c_uint, c_void};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::done;
use super::folder::{
    c_name, Folder, OpenHow, O_CLOEXEC, O_DIRECTORY, RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV, SYS_OPENAT2,
};

extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn mkdirat(folder: c_int, name: *const c_char, mode: c_uint) -> c_int;
    fn mknodat(folder: c_int, name: *const c_char, mode: c_uint, device: u64) -> c_int;
    fn symlinkat(target: *const c_char, folder: c_int, name: *const c_char) -> c_int;
    fn linkat(from: c_int, path: *const c_char, to: c_int, name: *const c_char, flags: c_int) -> c_int;
    fn readlinkat(folder: c_int, name: *const c_char, into: *mut c_char, count: usize) -> isize;
    fn fchownat(folder: c_int, name: *const c_char, uid: c_uint, gid: c_uint, flags: c_int) -> c_int;
    fn fchmodat(folder: c_int, name: *const c_char, mode: c_uint, flags: c_int) -> c_int;
    fn fchmod(file: c_int, mode: c_uint) -> c_int;
    fn utimensat(folder: c_int, name: *const c_char, times: *const [i64; 4], flags: c_int) -> c_int;
    fn fsetxattr(file: c_int, name: *const c_char, value: *const c_void, size: usize, flags: c_int) -> c_int;
    fn fgetxattr(file: c_int, name: *const c_char, value: *mut c_void, size: usize) -> isize;
}

const AT_SYMLINK_NOFOLLOW: c_int = 0x100;
const O_WRONLY: u64 = 1;
const O_RDWR: u64 = 2;
const O_NONBLOCK: u64 = 0o4000;
const O_CREAT: u64 = 0o100;
const O_EXCL: u64 = 0o200;
const O_PATH: u64 = 0o10000000;
/// Of x86_64 and of the generic table differ.
#[cfg(target_arch = "aarch64")]
const O_NOFOLLOW: u64 = 0o100000;
#[cfg(not(target_arch = "aarch64"))]
const O_NOFOLLOW: u64 = 0o400000;
const ENOENT: i32 = 2;
const ENXIO: i32 = 6;
const EISDIR: i32 = 21;
const ELOOP: i32 = 40;

pub const S_IFIFO: u32 = 0o010000;
pub const S_IFCHR: u32 = 0o020000;
const LINK_BYTES_MAX: usize = 4096;

impl Folder {
    /// What the name stands for, a link itself, without the right to read it. `path` has no link and no `..` in it.
    pub fn look(&self, path: &OsStr) -> io::Result<File> {
        self.open_entry(path, O_PATH | O_NOFOLLOW, 0).map(File::from)
    }

    pub fn folder(&self, path: &OsStr) -> io::Result<Folder> {
        self.open_entry(path, O_DIRECTORY, 0).map(Folder::from)
    }

    /// A new file, to be written. EEXIST.
    pub fn create(&self, name: &OsStr) -> io::Result<File> {
        self.open_entry(name, O_CREAT | O_EXCL | O_WRONLY, 0o600).map(File::from)
    }

    /// An existing regular file, to be read and written. `None` for a name of anything else, or of nothing.
    pub fn open_file(&self, name: &OsStr) -> io::Result<Option<File>> {
        match self.open_entry(name, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0).map(File::from) {
            Ok(file) => Ok(Some(file).filter(|file| file.metadata().map_or(false, |metadata| metadata.is_file()))),
            Err(error) if matches!(error.raw_os_error(), Some(ENOENT | ENXIO | EISDIR | ELOOP)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where the link of this name leads.
    pub fn read_link(&self, name: &OsStr) -> io::Result<OsString> {
        let name = c_name(name)?;
        let mut target = vec![0u8; LINK_BYTES_MAX];
        let count = unsafe { readlinkat(self.raw(), name.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        target.truncate(count as usize);
        Ok(OsString::from_vec(target))
    }

    pub fn make_folder(&self, name: &OsStr) -> io::Result<Folder> {
        let name_c = c_name(name)?;
        done(unsafe { mkdirat(self.raw(), name_c.as_ptr(), 0o700) })?;
        self.folder(name)
    }

    /// A node of a type such as `S_IFIFO`; of a device it has the number 0.
    pub fn make_node(&self, name: &OsStr, kind: u32) -> io::Result<()> {
        let name = c_name(name)?;
        done(unsafe { mknodat(self.raw(), name.as_ptr(), kind | 0o600, 0) })
    }

    pub fn make_link(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        let (target, name) = (c_name(target)?, c_name(name)?);
        done(unsafe { symlinkat(target.as_ptr(), self.raw(), name.as_ptr()) })
    }

    /// A second name for an entry of another folder, which may be a link.
    pub fn make_hard_link(&self, name: &OsStr, from: &Folder, source: &OsStr) -> io::Result<()> {
        let (source, name) = (c_name(source)?, c_name(name)?);
        done(unsafe { linkat(from.raw(), source.as_ptr(), self.raw(), name.as_ptr(), 0) })
    }

    pub fn give(&self, name: &OsStr, uid: u32, gid: u32) -> io::Result<()> {
        let name = c_name(name)?;
        done(unsafe { fchownat(self.raw(), name.as_ptr(), uid, gid, AT_SYMLINK_NOFOLLOW) })
    }

    /// Not of a link.
    pub fn change_mode(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        let name = c_name(name)?;
        done(unsafe { fchmodat(self.raw(), name.as_ptr(), mode, 0) })
    }

    /// Both times of an entry; seconds since 1970.
    pub fn date(&self, name: &OsStr, seconds: i64, nanoseconds: i64) -> io::Result<()> {
        let name = c_name(name)?;
        let times = [seconds, nanoseconds, seconds, nanoseconds];
        done(unsafe { utimensat(self.raw(), name.as_ptr(), &times, AT_SYMLINK_NOFOLLOW) })
    }

    fn open_entry(&self, path: &OsStr, flags: u64, mode: u64) -> io::Result<OwnedFd> {
        let path = c_name(path)?;
        let how = OpenHow {
            flags: flags | O_CLOEXEC,
            mode,
            resolve: RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH,
        };
        let size = size_of::<OpenHow>();
        let fd = unsafe { syscall(SYS_OPENAT2, self.raw(), path.as_ptr(), &how as *const OpenHow, size) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }
}

pub fn change_file_mode(file: &impl AsRawFd, mode: u32) -> io::Result<()> {
    done(unsafe { fchmod(file.as_raw_fd(), mode) })
}

pub fn set_attribute(file: &impl AsRawFd, name: &[u8], value: &[u8]) -> io::Result<()> {
    let name = CString::new(name)?;
    done(unsafe { fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
}

/// Whether an attribute is there with this value.
pub fn has_attribute(file: &impl AsRawFd, name: &[u8], value: &[u8]) -> bool {
    let name = CString::new(name).expect("constant");
    let mut found = vec![0u8; value.len() + 1];
    let count = unsafe { fgetxattr(file.as_raw_fd(), name.as_ptr(), found.as_mut_ptr().cast(), found.len()) };
    count >= 0 && &found[..count as usize] == value
}
