//! Mount namespaces without the mounts of all sandboxes. Each sandbox adds three to the table of the host, and whoever makes a mount
//! namespace copies all of them: the start of the five hundredth would cost twice that of the first.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::sys::{self, Error};

/// The mount points of the calling thread's namespace, each after its parent.
pub fn mount_points() -> Result<Vec<PathBuf>, Error> {
    mount_points_in("/proc/thread-self/mountinfo")
}

/// Those of a mount table (proc_pid_mountinfo(5)).
pub fn mount_points_in(table: &str) -> Result<Vec<PathBuf>, Error> {
    let text = std::fs::read(table).map_err(|error| Error::io("read", table, error))?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(mount_point).collect())
}

/// Moves the calling thread into a mount namespace of its own: that of this process without the mounts below `hide`. Mounts that the
/// host gains or loses outside of there appear and go in it too, where the host shares them.
pub fn enter_without(hide: &Path) -> Result<(), Error> {
    static BASE: Mutex<Option<(PathBuf, File)>> = Mutex::new(None);
    let mut base = BASE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match base.as_ref().filter(|(path, _)| path == hide) {
        Some((_, namespace)) => {
            sys::own_folders()?;
            sys::enter_mounts(namespace)?;
        }
        None => *base = Some((hide.to_path_buf(), make_base(hide)?)),
    }
    // The copy is made under the lock: nobody changes the base, but its first user is in it until here.
    sys::copy_mounts()
}

/// Leaves the calling thread in the new namespace.
fn make_base(hide: &Path) -> Result<File, Error> {
    sys::copy_mounts()?;
    sys::receive_mounts()?;
    for path in mount_points()?.iter().rev().filter(|path| path.starts_with(hide)) {
        sys::detach(path)?;
    }
    let own = "/proc/thread-self/ns/mnt";
    File::open(own).map_err(|error| Error::io("open", own, error))
}

/// The fifth field, in which blanks and backslashes are octal (proc_pid_mountinfo(5)).
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let field = line.split(|byte| *byte == b' ').nth(4)?;
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                path.push(byte);
                rest = &after[3..];
            }
            _ => {
                path.push(*first);
                rest = after;
            }
        }
    }
    Some(PathBuf::from(OsString::from_vec(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_read_as_the_kernel_writes_it() {
        let read = |line: &str| mount_point(line.as_bytes());
        assert_eq!(read("36 35 0:3 / /run/a rw shared:1 - tmpfs t rw"), Some(PathBuf::from("/run/a")));
        assert_eq!(read("36 35 0:3 / /run/a\\040b\\134c rw - tmpfs t rw"), Some(PathBuf::from("/run/a b\\c")));
        assert_eq!(read("36 35 0:3 / /run/a\\04"), Some(PathBuf::from("/run/a\\04")));
        assert_eq!(read(""), None);
    }
}
