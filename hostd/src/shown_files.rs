//! Files of the kernel that a sandbox sees as the host shows them, such as `/proc/meminfo`, replaced while it runs: what showed them may
//! have ended.

use std::path::{Path, PathBuf};

use crate::mounts::mount_points_in;
use crate::network::open_own_mounts;
use crate::sys::{self, Error};

/// Puts each file below `source` in the place of the mount that the sandbox of this process has at the same path. A sandbox that has none
/// of them mounted stays as it is: its memory could not be saved with a mount more. One that misses some has lost them to a replacement
/// that was cut off.
pub fn replace(pid: u32, start: u64, source: &Path, files: &[PathBuf]) -> Result<(), Error> {
    let namespace = match open_own_mounts(pid, start)? {
        Some(namespace) => namespace,
        None => return Ok(()),
    };
    // If another process has got the number since, no path of it matters: what is changed are the mounts of this namespace.
    let mounted = mount_points_in(&format!("/proc/{pid}/mountinfo"))?;
    let flags = sys::MOUNT_ATTR_RDONLY | sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV | sys::MOUNT_ATTR_NOEXEC;
    let mut trees = Vec::new();
    if !files.iter().any(|file| mounted.contains(file)) {
        return Ok(());
    }
    for file in files {
        let path = source.join(file.strip_prefix("/").unwrap_or(file));
        let tree = sys::clone_tree(&path)?;
        sys::set_private_tree(&tree, flags, &path)?;
        trees.push((tree, file));
    }
    sys::own_folders()?;
    sys::enter_mounts(&namespace)?;
    for (tree, file) in trees {
        if mounted.contains(file) {
            sys::detach(file)?;
        }
        sys::attach_tree(&tree, file)?;
    }
    Ok(())
}
