//! Mounts the folder with a sandbox's limits where its programs look for the limits of control groups. The OCI runtime cannot make a mount
//! point there, because in version 2 each folder is a group. So the mount is made when the sandbox runs.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::network::open_own_mounts;
use crate::protocol::fields::{Fields, Process};
use sys::Error;

const GROUPS: &str = "/sys/fs/cgroup";
const NAME: &str = "sandbox";

#[derive(Debug)]
pub struct Show {
    process: Process,
    /// The folder on the host.
    source: PathBuf,
    /// The root user of the sandbox.
    owner: u32,
}

impl Show {
    pub fn from_fields(fields: &mut Fields) -> Result<Show, Error> {
        Ok(Show { process: fields.process()?, source: fields.path("source")?, owner: fields.number("owner")? })
    }
}

/// Harmless where the folder is mounted already, as after a restore. Leaves the calling thread in the mount namespace of the sandbox, in
/// which no process may mount anything, so that the path leads where the runtime has made it lead.
pub fn show(request: &Show) -> Result<(), Error> {
    let namespace = match open_own_mounts(request.process)? {
        Some(namespace) => namespace,
        None => return Ok(()),
    };
    let tree = sys::clone_tree(&request.source)?;
    let flags = sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV | sys::MOUNT_ATTR_NOEXEC;
    sys::seal_tree_with(&tree, flags, &request.source)?;
    let of_host = identity(Path::new(GROUPS))?;
    sys::own_folders()?;
    sys::enter_mounts(&namespace)?;
    // Where the runtime shows the host's groups, the folder would be made among them.
    if identity(Path::new(GROUPS))? == of_host {
        return Ok(());
    }
    let target = Path::new(GROUPS).join(NAME);
    if target.join("disk.max").exists() {
        return Ok(());
    }
    make_folder(request.owner)?;
    sys::attach_tree(&tree, &target)
}

/// Device and inode.
fn identity(path: &Path) -> Result<(u64, u64), Error> {
    let metadata = std::fs::metadata(path).map_err(|error| Error::io("stat", path.display(), error))?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Makes the folder in a copy of the mount, which may be read-only itself.
fn make_folder(owner: u32) -> Result<(), Error> {
    let groups = Path::new(GROUPS);
    let copy = sys::clone_tree(groups)?;
    sys::unseal_tree(&copy, groups)?;
    let made = sys::make_folder_at(&copy, NAME).or_else(|error| match error.raw_os_error() {
        // The file system of version 1 belongs to the sandbox, and knows only its ids.
        Some(sys::EOVERFLOW) => sys::acting_as(owner, || sys::make_folder_at(&copy, NAME)),
        _ => Err(error),
    });
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::io("mkdir", NAME, error)),
        _ => Ok(()),
    }
}
