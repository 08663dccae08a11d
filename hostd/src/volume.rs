//! A volume in the bundle of a sandbox: a mount of its subvolume that shows the ids from 0 on disk as those of the sandbox's range, so that
//! root owns the same files in each sandbox. The mount is private to the host, and its flags hold for whatever is bound from it.

use std::path::Path;

use sys::Error;

/// Ids `0..count` of the files at `source` are `start..start+count` below `target`.
pub fn mount(source: &Path, target: &Path, (start, count): (u32, u32), read_only: bool) -> Result<(), Error> {
    let tree = sys::clone_tree(source)?;
    let namespace = sys::user_namespace(0, start, count)?;
    let flags = sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV;
    let flags = if read_only { flags | sys::MOUNT_ATTR_RDONLY } else { flags };
    sys::set_tree(&tree, flags, Some(&namespace), source)?;
    sys::attach_tree(&tree, target)
}
