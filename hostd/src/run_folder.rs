//! Makes the folder in `/run` a private mount, so that no other namespace receives the mounts in it. Where `/` is shared, as with systemd,
//! each service with its own namespace would otherwise receive every mount of every sandbox.

use std::path::Path;

use crate::mounts::mount_points;
use sys::Error;

/// Makes `folder` a private mount; harmless on a repeat.
pub fn make_own(folder: &Path) -> Result<(), Error> {
    let folder = folder.canonicalize().map_err(|error| Error::io("resolve", folder.display(), error))?;
    if !mount_points()?.contains(&folder) {
        sys::attach_tree(&sys::clone_tree(&folder)?, &folder)?;
    }
    // A mount that is attached in a shared one becomes shared.
    sys::make_private(&folder)
}

/// Makes `folder`, the source of a sandbox's files, a mount with its own peer group. A memory that was saved with files of a shared
/// mount needs a shared mount at the restore: CRIU makes the new mounts slaves of it.
pub fn make_source(folder: &Path) -> Result<(), Error> {
    sys::attach_tree(&sys::clone_tree(folder)?, folder)?;
    sys::make_private(folder)?;
    sys::make_shared(folder)
}
