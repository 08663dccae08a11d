//! Replaces the mounts that a running sandbox has on files such as `/proc/meminfo`: the lxcfs that showed them may have ended.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::mounts::{mounts_in, Mount};
use crate::network::open_own_mounts;
use crate::process::freeze::members;
use crate::protocol::fields::Process;
use sys::Error;

/// A process that has a file open at each of this many looks keeps it.
const LOOKS: u32 = 10;
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Replaces the sandbox's mount on each of `files` by the file below `source`. The memory of a process could not be saved after the mount
/// of a file that it holds open is detached. So a mount of the same `source` stays, and so does a file of the host that a process of the
/// control group `groups` holds open (`false` then). A file of an ended lxcfs answers nothing, and goes in any case.
///
/// A sandbox without any of these mounts stays as it is, because its memory could not be saved with an additional mount. A sandbox that
/// misses some has lost them to an interrupted replacement, and gets them again.
pub fn replace(process: Process, source: &Path, files: &[PathBuf], groups: &[PathBuf]) -> Result<bool, Error> {
    let namespace = match open_own_mounts(process)? {
        Some(namespace) => namespace,
        None => return Ok(true),
    };
    // Another process may have got the number since. Its paths do no harm, because only mounts of `namespace` change.
    let mounts = mounts_in(&format!("/proc/{}/mountinfo", process.pid))?;
    // The last one at a path lies on top.
    let at = |file: &PathBuf| mounts.iter().rfind(|mount| mount.point == *file);
    if !files.iter().any(|file| at(file).is_some()) {
        return Ok(true);
    }
    let flags = sys::MOUNT_ATTR_RDONLY | sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV | sys::MOUNT_ATTR_NOEXEC;
    let mut trees = Vec::new();
    let mut held = 0;
    for file in files {
        let path = source.join(file.strip_prefix("/").unwrap_or(file));
        let old = at(file);
        if old.map_or(false, |mount| mount.is_private && is_of(mount, &path)) {
            continue;
        }
        if old.map_or(false, |mount| is_of(mount, file) && is_held(mount, groups)) {
            held += 1;
            continue;
        }
        let tree = sys::clone_tree(&path)?;
        sys::set_private_tree(&tree, flags, &path)?;
        trees.push((tree, file, old.is_some()));
    }
    if trees.is_empty() {
        return Ok(held == 0);
    }
    sys::own_folders()?;
    sys::enter_mounts(&namespace)?;
    for (tree, file, is_mounted) in trees {
        if is_mounted {
            sys::detach(file)?;
        }
        sys::attach_tree(&tree, file)?;
    }
    Ok(held == 0)
}

/// Whether a process holds a file of this mount open for longer than a read takes.
fn is_held(mount: &Mount, groups: &[PathBuf]) -> bool {
    let mut holders: Vec<i32> = members(groups).into_iter().filter(|pid| opens(*pid, mount)).collect();
    for _ in 0..LOOKS {
        if holders.is_empty() {
            return false;
        }
        sleep(LOOK_INTERVAL);
        holders.retain(|pid| opens(*pid, mount));
    }
    true
}

fn opens(pid: i32, mount: &Mount) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    descriptors.filter_map(|descriptor| fs::read_to_string(descriptor.path()).ok()).any(|text| {
        let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        id.map_or(false, |id| id.trim() == mount.id)
    })
}

/// Whether a mount is of the file system that has the file at `path`. No other file system gets the same number while it is mounted.
fn is_of(mount: &Mount, path: &Path) -> bool {
    fs::metadata(path).map_or(false, |file| mount.device == device(file.dev()))
}

/// `major:minor` of a device number (makedev(3)).
fn device(number: u64) -> String {
    let major = (number >> 8 & 0xfff) | (number >> 32 & !0xfff);
    let minor = (number & 0xff) | (number >> 12 & !0xff);
    format!("{major}:{minor}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_called_as_in_a_mount_table() {
        assert_eq!(device(0x32), "0:50");
        assert_eq!(device(0xfe00), "254:0");
        assert_eq!(device(0x1000_0710), "7:65552");
        let own = mounts_in("/proc/self/mountinfo").ok().unwrap();
        let proc = own.iter().rfind(|mount| mount.point == Path::new("/proc")).unwrap();
        assert!(is_of(proc, Path::new("/proc/meminfo")));
        assert!(!is_of(proc, Path::new("/")));
    }

    #[test]
    fn a_mount_is_held_while_a_file_of_it_is_open() {
        let own = mounts_in("/proc/self/mountinfo").ok().unwrap();
        let proc = own.iter().rfind(|mount| mount.point == Path::new("/proc")).unwrap();
        let file = fs::File::open("/proc/meminfo").unwrap();
        let pid = std::process::id() as i32;
        assert!(opens(pid, proc));
        let other = Mount { id: "0".into(), ..mounts_in("/proc/self/mountinfo").ok().unwrap().remove(0) };
        assert!(!opens(pid, &other));
        drop(file);
    }
}
