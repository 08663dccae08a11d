//! Mount namespaces without the mounts of all sandboxes. Each sandbox adds three mounts to the table of the host, and a new mount namespace
//! copies all of them: the start of the five hundredth sandbox would cost twice that of the first.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use sys::Error;

pub struct Mount {
    /// The number of the mount, which `fdinfo` of an open file tells too.
    pub id: String,
    pub point: PathBuf,
    /// The device of its file system, as `major:minor`.
    pub device: String,
    /// Whether the mount neither receives mounts from others nor propagates its own.
    pub is_private: bool,
}

/// The mount points of the calling thread's namespace, each after its parent.
pub fn mount_points() -> Result<Vec<PathBuf>, Error> {
    Ok(mounts_in("/proc/thread-self/mountinfo")?.into_iter().map(|mount| mount.point).collect())
}

/// The mounts of a table (proc_pid_mountinfo(5)).
pub fn mounts_in(table: &str) -> Result<Vec<Mount>, Error> {
    let text = std::fs::read(table).map_err(|error| Error::io("read", table, error))?;
    Ok(parse(&text))
}

/// The mounts of the text of a table.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// Moves the calling thread into a mount namespace of its own: a copy of this process's without the mounts below `hide`. Where the host
/// shares other mounts, their later changes reach the copy too.
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

/// Reads fields one, three and five; optional fields go from seven to a dash.
fn mount(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let id = String::from_utf8_lossy(fields.first()?).into_owned();
    let device = String::from_utf8_lossy(fields.get(2)?).into_owned();
    let is_private = fields.get(6).map_or(false, |field| *field == b"-");
    Some(Mount { id, point: unescaped(fields.get(4)?), device, is_private })
}

/// A path with octal escapes for blanks and backslashes.
fn unescaped(field: &[u8]) -> PathBuf {
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
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_as_the_kernel_writes_it() {
        let read = |line: &str| mount(line.as_bytes()).map(|mount| (mount.point, mount.device, mount.is_private));
        let is = |point: &str, is_private| Some((PathBuf::from(point), "0:3".to_string(), is_private));
        assert_eq!(read("36 35 0:3 / /run/a rw shared:1 - tmpfs t rw"), is("/run/a", false));
        assert_eq!(read("36 35 0:3 / /run/a rw master:1 - tmpfs t rw"), is("/run/a", false));
        assert_eq!(read("36 35 0:3 / /run/a\\040b\\134c rw - tmpfs t rw"), is("/run/a b\\c", true));
        assert_eq!(read("36 35 0:3 / /run/a\\04"), is("/run/a\\04", false));
        assert_eq!(read(""), None);
    }
}
