//! The folder in `/run` as a private mount, whose mounts no other namespace receives. Where `/` is shared, as with systemd, each
//! service with its own namespace would otherwise receive every mount of every sandbox.

use std::fs::File;
use std::os::unix::io::AsRawFd;
use std::path::{Path, PathBuf};

use crate::mounts::mount_points;
use sys::Error;

/// Makes `folder` a private mount; harmless on a repeat. Mounts below it, made by an earlier version, are moved in and leave the
/// namespaces that have received them.
pub fn make_own(folder: &Path) -> Result<(), Error> {
    let folder = folder.canonicalize().map_err(|error| Error::io("resolve", folder.display(), error))?;
    let mounts = mount_points()?;
    if mounts.contains(&folder) {
        return sys::make_private(&folder);
    }
    let below: Vec<&PathBuf> = mounts.iter().filter(|path| path.starts_with(&folder)).collect();
    let copies = below.iter().map(|path| sys::clone_tree(path)).collect::<Result<Vec<_>, Error>>()?;
    // The old mounts cannot be reached by their path once the new mount is on top.
    let before = File::open(&folder).map_err(|error| Error::io("open", folder.display(), error))?;
    let own = sys::clone_tree(&folder)?;
    sys::attach_tree(&own, &folder)?;
    // A mount attached in a shared one becomes shared, so make each private after it is attached.
    sys::make_private(&folder)?;
    for path in below.iter().rev() {
        let inside = path.strip_prefix(&folder).expect("is below");
        let hidden = Path::new("/proc/self/fd").join(before.as_raw_fd().to_string()).join(inside);
        sys::detach(&hidden)?;
    }
    for (copy, path) in copies.iter().zip(&below) {
        sys::attach_tree(copy, path)?;
        sys::make_private(path)?;
    }
    Ok(())
}

/// Makes `folder`, the source of a sandbox's files, a mount with its own peer group. A memory that was saved with files of a shared
/// mount needs a shared mount at the restore: CRIU makes the new mounts slaves of it.
pub fn make_source(folder: &Path) -> Result<(), Error> {
    sys::attach_tree(&sys::clone_tree(folder)?, folder)?;
    sys::make_private(folder)?;
    sys::make_shared(folder)
}
