//! Mounts, attached and detached ones.

use crate::folder::{c_name, Folder};
use crate::libc::{self, c_int, c_uint, c_ulong, MountAttr, AT_EMPTY_PATH, AT_FDCWD, AT_RECURSIVE};
use crate::{c_path, checked, done, owned, Error};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::path::Path;

pub const MOUNT_ATTR_RDONLY: u64 = 0x1;
pub const MOUNT_ATTR_NOSUID: u64 = 0x2;
pub const MOUNT_ATTR_NODEV: u64 = 0x4;
pub const MOUNT_ATTR_NOEXEC: u64 = 0x8;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

pub const MS_RDONLY: c_ulong = 1;
pub const MS_NOSUID: c_ulong = 2;
pub const MS_NODEV: c_ulong = 4;
pub const MS_NOEXEC: c_ulong = 8;
pub const MS_NOSYMFOLLOW: c_ulong = 256;
pub(crate) const MS_REC: c_ulong = 0x4000;
pub(crate) const MS_PRIVATE: c_ulong = 1 << 18;
pub(crate) const MS_SLAVE: c_ulong = 1 << 19;
const MS_SHARED: c_ulong = 1 << 20;

const OPEN_TREE_CLONE: c_uint = 1;
const OPEN_TREE_CLOEXEC: c_uint = 0o2000000;
const MOVE_MOUNT_F_EMPTY_PATH: c_uint = 4;
const MOVE_MOUNT_T_EMPTY_PATH: c_uint = 0x40;

pub fn mount_at(kind: &str, target: &Path, flags: c_ulong, data: &str) -> Result<(), Error> {
    let kind_c = CString::new(kind).map_err(|_| Error::new("file system type holds a NUL byte"))?;
    let data_c = CString::new(data).map_err(|_| Error::new("mount options hold a NUL byte"))?;
    let target_c = c_path(target)?;
    // SAFETY: the strings end with NUL and live as long as this call.
    let status =
        unsafe { libc::mount(kind_c.as_ptr(), target_c.as_ptr(), kind_c.as_ptr(), flags, data_c.as_ptr().cast()) };
    checked(status.into(), &format!("mount {kind} ({data}) on"), target.display())
}

/// A detached copy of the mount at `path`, with `path` as its root.
pub fn clone_tree(path: &Path) -> Result<OwnedFd, Error> {
    open_tree(path, OPEN_TREE_CLONE)
}

/// The same with all mounts below.
pub fn clone_tree_with_mounts(path: &Path) -> Result<OwnedFd, Error> {
    open_tree(path, OPEN_TREE_CLONE | AT_RECURSIVE)
}

/// The same of what a descriptor stands for.
pub fn clone_tree_of(file: &impl AsRawFd) -> io::Result<OwnedFd> {
    let empty = CString::default();
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH;
    // SAFETY: the string ends with NUL and lives as long as this call, whose result is a new descriptor.
    unsafe { owned(libc::syscall(libc::SYS_OPEN_TREE, file.as_raw_fd(), empty.as_ptr(), flags)) }
}

fn open_tree(path: &Path, flags: c_uint) -> Result<OwnedFd, Error> {
    let path_c = c_path(path)?;
    // SAFETY: the path ends with NUL and lives as long as this call, whose result is a new descriptor.
    let opened =
        unsafe { owned(libc::syscall(libc::SYS_OPEN_TREE, AT_FDCWD, path_c.as_ptr(), flags | OPEN_TREE_CLOEXEC)) };
    opened.map_err(|error| Error::io("open_tree", path.display(), error))
}

pub fn attach_tree(tree: &OwnedFd, target: &Path) -> Result<(), Error> {
    let target_c = c_path(target)?;
    let empty = CString::default();
    // SAFETY: the strings end with NUL and live as long as this call.
    let status = unsafe {
        libc::syscall(
            libc::SYS_MOVE_MOUNT,
            tree.as_raw_fd(),
            empty.as_ptr(),
            AT_FDCWD,
            target_c.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    checked(status, "move_mount onto", target.display())
}

/// Attaches to what a descriptor stands for, whatever its name leads to by now.
pub fn attach_tree_on(tree: &OwnedFd, target: &impl AsRawFd) -> io::Result<()> {
    let empty = CString::default();
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    let (tree, target) = (tree.as_raw_fd(), target.as_raw_fd());
    // SAFETY: the strings end with NUL and live as long as this call.
    let status = unsafe { libc::syscall(libc::SYS_MOVE_MOUNT, tree, empty.as_ptr(), target, empty.as_ptr(), flags) };
    done(status as c_int)
}

/// Ends the propagation of mounts from and to the mount at `path`.
pub fn make_private(path: &Path) -> Result<(), Error> {
    propagate(path, MS_PRIVATE)
}

/// Gives the mount at `path` a group of peers of its own if it is private.
pub fn make_shared(path: &Path) -> Result<(), Error> {
    propagate(path, MS_SHARED)
}

pub(crate) fn propagate(path: &Path, kind: c_ulong) -> Result<(), Error> {
    let path_c = c_path(path)?;
    let none = CStr::from_bytes_with_nul(b"none\0").expect("constant");
    // SAFETY: the strings end with NUL and live as long as this call; a change of propagation takes neither type nor options.
    let status = unsafe { libc::mount(none.as_ptr(), path_c.as_ptr(), std::ptr::null(), kind, std::ptr::null()) };
    checked(status.into(), "change propagation of", path.display())
}

/// Detaches the mount at `path`; it ends with its last user.
pub fn detach(path: &Path) -> Result<(), Error> {
    detach_at(&c_path(path)?).map_err(|error| Error::io("umount", path.display(), error))
}

/// Makes a detached mount read-only and, with a user namespace, translates its owners by that namespace's mapping.
pub fn seal_tree(tree: &OwnedFd, user_namespace: Option<&OwnedFd>, path: &Path) -> Result<(), Error> {
    set_tree(tree, MOUNT_ATTR_RDONLY, user_namespace, path)
}

/// Makes a detached mount read-only, with these flags besides.
pub fn seal_tree_with(tree: &OwnedFd, flags: u64, path: &Path) -> Result<(), Error> {
    set_tree(tree, MOUNT_ATTR_RDONLY | flags, None, path)
}

/// Makes a detached mount writable.
pub fn unseal_tree(tree: &OwnedFd, path: &Path) -> Result<(), Error> {
    let attr = MountAttr { attr_set: 0, attr_clr: MOUNT_ATTR_RDONLY, propagation: 0, userns_fd: 0 };
    set_attributes(tree, &attr, path)
}

/// Adds flags (`MOUNT_ATTR_…`) to a detached mount and, with a user namespace, translates its owners by that namespace's mapping.
pub fn set_tree(tree: &OwnedFd, flags: u64, user_namespace: Option<&OwnedFd>, path: &Path) -> Result<(), Error> {
    let idmap = if user_namespace.is_some() { MOUNT_ATTR_IDMAP } else { 0 };
    let userns_fd = user_namespace.map_or(0, |fd| fd.as_raw_fd() as u64);
    set_attributes(tree, &MountAttr { attr_set: flags | idmap, attr_clr: 0, propagation: 0, userns_fd }, path)
}

/// Adds flags to a detached mount, which gets nothing of what is mounted below the mount that it was copied from.
pub fn set_private_tree(tree: &OwnedFd, flags: u64, path: &Path) -> Result<(), Error> {
    let propagation = MS_PRIVATE;
    set_attributes(tree, &MountAttr { attr_set: flags, attr_clr: 0, propagation, userns_fd: 0 }, path)
}

fn set_attributes(tree: &OwnedFd, attr: &MountAttr, path: &Path) -> Result<(), Error> {
    let empty = CString::default();
    // SAFETY: the string ends with NUL, and the structure has the given size.
    let status = unsafe {
        libc::syscall(
            libc::SYS_MOUNT_SETATTR,
            tree.as_raw_fd(),
            empty.as_ptr(),
            AT_EMPTY_PATH,
            attr as *const MountAttr,
            std::mem::size_of::<MountAttr>(),
        )
    };
    checked(status, "mount_setattr", path.display())
}

/// Makes a folder (mode 0755) in a mount.
pub fn make_folder_at(tree: &OwnedFd, name: &str) -> io::Result<()> {
    let name = c_name(OsStr::new(name))?;
    // SAFETY: the name ends with NUL and lives as long as this call.
    done(unsafe { libc::mkdirat(tree.as_raw_fd(), name.as_ptr(), 0o755) })
}

/// Detaches the top mount of an entry by its name alone, which must hold no slash. The calling thread must have a working directory of its
/// own (`own_folders`), which becomes the folder.
pub fn detach_in(folder: &Folder, name: &OsStr) -> io::Result<()> {
    // SAFETY: the call has no pointers.
    done(unsafe { libc::fchdir(folder.raw()) })?;
    detach_at(&c_name(name)?)
}

pub(crate) fn detach_at(path: &CStr) -> io::Result<()> {
    const MNT_DETACH: c_int = 2;
    const UMOUNT_NOFOLLOW: c_int = 8;
    // SAFETY: the path ends with NUL and lives as long as this call.
    done(unsafe { libc::umount2(path.as_ptr(), MNT_DETACH | UMOUNT_NOFOLLOW) })
}
