//! Subvolumes of btrfs (btrfs-ioctl(2), `linux/btrfs.h`): the disks of sandboxes and the layers of checkpoints.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::AsRawFd;
use std::path::Path;

use sys::Error;

// Encoded as `_IOW` and `_IOR` do, which all architectures of Atoll share.
const SUBVOL_CREATE: u64 = 0x5000_940e;
const SNAP_DESTROY: u64 = 0x5000_940f;
const SNAP_CREATE_V2: u64 = 0x5000_9417;
const QGROUP_LIMIT: u64 = 0x8030_942b;

const NAME_MAX: usize = 255;
const SUBVOL_RDONLY: u64 = 2;
const LIMIT_MAX_RFER: u64 = 1;

/// `struct btrfs_ioctl_vol_args`.
#[repr(C)]
struct VolArgs {
    fd: i64,
    name: [u8; 4088],
}

/// `struct btrfs_ioctl_vol_args_v2`.
#[repr(C)]
struct VolArgsV2 {
    fd: i64,
    transid: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; 4040],
}

/// `struct btrfs_ioctl_qgroup_limit_args`. Group 0 is that of the subvolume itself.
#[repr(C)]
struct LimitArgs {
    group: u64,
    flags: u64,
    max_referenced: u64,
    max_exclusive: u64,
    reserved: [u64; 2],
}

pub fn create(path: &Path) -> Result<(), Error> {
    on_parent(path, SUBVOL_CREATE, "create subvolume")
}

pub fn snapshot(from: &Path, path: &Path, writable: bool) -> Result<(), Error> {
    let (parent, name) = split(path)?;
    let source = open(from)?;
    let flags = if writable { 0 } else { SUBVOL_RDONLY };
    let fd = i64::from(source.as_raw_fd());
    let mut args = VolArgsV2 { fd, transid: 0, flags, unused: [0; 4], name: [0; 4040] };
    args.name[..name.len()].copy_from_slice(name.as_bytes());
    sys::control(&open(parent)?, SNAP_CREATE_V2, &mut args, "snapshot to", path.display())
}

/// btrfs frees the space soon after.
pub fn delete(path: &Path) -> Result<(), Error> {
    on_parent(path, SNAP_DESTROY, "delete subvolume")
}

/// Snapshots of the subvolume do not count.
pub fn limit(path: &Path, bytes: u64) -> Result<(), Error> {
    let reserved = [0; 2];
    let mut args = LimitArgs { group: 0, flags: LIMIT_MAX_RFER, max_referenced: bytes, max_exclusive: 0, reserved };
    sys::control(&open(path)?, QGROUP_LIMIT, &mut args, "limit subvolume", path.display())
}

fn on_parent(path: &Path, request: u64, what: &str) -> Result<(), Error> {
    let (parent, name) = split(path)?;
    let mut args = VolArgs { fd: 0, name: [0; 4088] };
    args.name[..name.len()].copy_from_slice(name.as_bytes());
    sys::control(&open(parent)?, request, &mut args, what, path.display())
}

fn split(path: &Path) -> Result<(&Path, &OsStr), Error> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if name.len() <= NAME_MAX => Ok((parent, name)),
        _ => Err(Error::new(format!("{} cannot be a subvolume", path.display()))),
    }
}

fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|error| Error::io("open", path.display(), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    #[test]
    fn structures_have_the_sizes_that_the_requests_encode() {
        let encoded = |request: u64| (request >> 16 & 0x3fff) as usize;
        assert_eq!(size_of::<VolArgs>(), encoded(SUBVOL_CREATE));
        assert_eq!(size_of::<VolArgs>(), encoded(SNAP_DESTROY));
        assert_eq!(size_of::<VolArgsV2>(), encoded(SNAP_CREATE_V2));
        assert_eq!(size_of::<LimitArgs>(), encoded(QGROUP_LIMIT));
    }

    #[test]
    fn the_root_and_names_without_end_are_refused() {
        assert!(split(Path::new("/")).is_err());
        assert!(split(Path::new(&format!("/{}", "x".repeat(256)))).is_err());
        assert_eq!(split(Path::new("/pool/sandboxes/sb-1")).ok().map(|(_, name)| name), Some(OsStr::new("sb-1")));
    }
}
