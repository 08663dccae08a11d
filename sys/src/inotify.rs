//! inotify(7).

use crate::libc::{self, c_int, O_CLOEXEC, O_NONBLOCK};
use crate::{check, done, folder::c_name, owned};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::io::{AsRawFd, RawFd};
use std::path::Path;

pub const IN_MODIFY: u32 = 0x2;
pub const IN_ATTRIB: u32 = 0x4;
pub const IN_MOVED_FROM: u32 = 0x40;
pub const IN_MOVED_TO: u32 = 0x80;
pub const IN_CREATE: u32 = 0x100;
pub const IN_DELETE: u32 = 0x200;
pub const IN_DELETE_SELF: u32 = 0x400;
pub const IN_MOVE_SELF: u32 = 0x800;
pub const IN_UNMOUNT: u32 = 0x2000;
pub const IN_Q_OVERFLOW: u32 = 0x4000;
pub const IN_IGNORED: u32 = 0x8000;
pub const IN_ONLYDIR: u32 = 0x0100_0000;
pub const IN_EXCL_UNLINK: u32 = 0x0400_0000;
pub const IN_ISDIR: u32 = 0x4000_0000;

const HEADER_BYTES: usize = 16;
/// Some hundred events; an event has at most `HEADER_BYTES` and a name of 256 bytes.
const READ_BYTES: usize = 16 * 1024;

pub struct Inotify(File);

/// `struct inotify_event`.
#[derive(Debug, PartialEq)]
pub struct Change {
    /// Negative for `IN_Q_OVERFLOW`.
    pub watch: i32,
    pub mask: u32,
    pub cookie: u32,
    /// Empty for the watched folder itself.
    pub name: OsString,
}

impl Inotify {
    /// EMFILE beyond `fs.inotify.max_user_instances`.
    pub fn new() -> io::Result<Inotify> {
        // SAFETY: the call has no pointers, and its result is a new descriptor.
        unsafe { owned(libc::inotify_init1(O_NONBLOCK | O_CLOEXEC).into()) }.map(|fd| Inotify(File::from(fd)))
    }

    /// Watches what the path leads to. ENOSPC beyond `fs.inotify.max_user_watches`. The watch of one file is the same whatever its path.
    pub fn add(&self, path: &Path, mask: u32) -> io::Result<i32> {
        let path = c_name(path.as_os_str())?;
        // SAFETY: the path ends with NUL and lives as long as this call.
        check(unsafe { libc::inotify_add_watch(self.0.as_raw_fd(), path.as_ptr(), mask) })
    }

    /// `IN_IGNORED` follows. EINVAL when the watch is gone.
    pub fn remove(&self, watch: i32) -> io::Result<()> {
        // SAFETY: the call has no pointers.
        done(unsafe { libc::inotify_rm_watch(self.0.as_raw_fd(), watch as c_int) })
    }

    /// Appends events that wait; false when there was none.
    pub fn read(&self, changes: &mut Vec<Change>) -> io::Result<bool> {
        let mut buffer = [0u8; READ_BYTES];
        match (&self.0).read(&mut buffer) {
            Ok(count) => {
                parse(&buffer[..count], changes);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl AsRawFd for Inotify {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn parse(mut bytes: &[u8], changes: &mut Vec<Change>) {
    while bytes.len() >= HEADER_BYTES {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_ne_bytes(word)
        };
        let end = HEADER_BYTES + word(12) as usize;
        let padded = match bytes.get(HEADER_BYTES..end) {
            Some(name) => name,
            None => return,
        };
        let name = padded.split(|&byte| byte == 0).next().unwrap_or(&[]);
        let name = OsString::from_vec(name.to_vec());
        changes.push(Change { watch: word(0) as i32, mask: word(4), cookie: word(8), name });
        bytes = &bytes[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn changes_come_in_order_with_their_names() {
        let folder = std::env::temp_dir().join(format!("atoll-inotify-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let inotify = Inotify::new().unwrap();
        let watch = inotify.add(&folder, IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR).unwrap();
        let mut changes = Vec::new();
        assert!(!inotify.read(&mut changes).unwrap());
        let long = "x".repeat(255);
        fs::write(folder.join("a"), "").unwrap();
        fs::rename(folder.join("a"), folder.join(&long)).unwrap();
        fs::remove_file(folder.join(&long)).unwrap();
        assert!(inotify.read(&mut changes).unwrap());
        let told: Vec<_> = changes.iter().map(|it| (it.watch, it.mask, it.name.to_str().unwrap())).collect();
        let expected = [(IN_CREATE, "a"), (IN_MOVED_FROM, "a"), (IN_MOVED_TO, &*long), (IN_DELETE, &*long)];
        assert_eq!(told, expected.map(|(mask, name)| (watch, mask, name)));
        assert!(changes[1].cookie != 0 && changes[1].cookie == changes[2].cookie);
        inotify.remove(watch).unwrap();
        assert!(inotify.remove(watch).is_err() && inotify.add(&folder.join("gone"), IN_CREATE).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
