//! Moves an entry: by a rename where the kernel can, else by a copy that takes its place. An overlay renames no folder of a lower layer.

use crate::files::access::{self, name_of};
use crate::files::remove::remove;
use crate::files::uploads::random_hex;
use crate::files::{about, temporary_name};
use crate::protocol::bytes::printable;
use crate::protocol::fault::{Fault, Outcome};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use sys::folder::Folder;

/// The target's folder must exist. `conflict` where the target exists, unless `overwrite` replaces a file or an empty folder.
pub fn move_entry(from: &Path, to: &Path, overwrite: bool) -> Outcome<()> {
    for (key, path) in [("from", from), ("to", to)] {
        match path.components().next_back() {
            Some(Component::Normal(_)) => {}
            _ => return Err(Fault::invalid(format!("{}: must name something below the root", key))),
        }
        // A user may take no way through a link of `/proc/PID/fd` (`access::open`).
        let folder = path.parent().unwrap_or_else(|| Path::new("/"));
        access::metadata(folder).map_err(|error| about(error, folder))?;
    }
    fs::symlink_metadata(from).map_err(|error| about(error, from))?;
    if to != from && to.starts_with(from) {
        return Err(Fault::invalid(format!("to: {} lies in what is moved", printable(to))));
    }
    match rename(from, to, overwrite) {
        Err(error) if error.raw_os_error() == Some(sys::EXDEV) => move_by_copy(from, to, overwrite),
        result => result.map_err(|error| about(error, to)),
    }
}

fn rename(from: &Path, to: &Path, overwrite: bool) -> io::Result<()> {
    if overwrite {
        return fs::rename(from, to);
    }
    match sys::rename_new(from, to) {
        // The file system cannot tell a new name from an old one.
        Err(error) if error.raw_os_error() == Some(sys::EINVAL) => match fs::symlink_metadata(to) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => fs::rename(from, to),
        },
        result => result,
    }
}

fn move_by_copy(from: &Path, to: &Path, overwrite: bool) -> Outcome<()> {
    if !overwrite && fs::symlink_metadata(to).is_ok() {
        return Err(about(io::ErrorKind::AlreadyExists.into(), to));
    }
    let (folder, name) = place_of(to);
    let draft = folder.join(temporary_name(name.as_os_str().as_bytes(), &format!(".atoll-{}", random_hex(8)?)));
    let moved = copy(from, &draft).and_then(|_| rename(&draft, to, overwrite).map_err(|error| about(error, to)));
    if let Err(fault) = moved {
        let _ = remove(&draft);
        return Err(fault);
    }
    remove(from)
}

fn place_of(path: &Path) -> (&Path, &Path) {
    let name = path.file_name().map_or(path, Path::new);
    (path.parent().unwrap_or_else(|| Path::new("/")), name)
}

/// Copies a tree with modes, times and, where the rights allow it, owners. In steps, as a deep tree would need a deep stack.
fn copy(from: &Path, to: &Path) -> Outcome<()> {
    let mut waiting = vec![PathBuf::new()];
    let mut folders: Vec<(PathBuf, Metadata)> = Vec::new();
    while let Some(way) = waiting.pop() {
        // A path that ends in a slash would follow a link.
        let at = |top: &Path| if way.as_os_str().is_empty() { top.to_path_buf() } else { top.join(&way) };
        let (source, target) = (at(from), at(to));
        let metadata = match fs::symlink_metadata(&source) {
            Ok(metadata) => metadata,
            // Another process has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folders.is_empty() => continue,
            Err(error) => return Err(about(error, &source)),
        };
        let kind = metadata.file_type();
        if kind.is_dir() {
            let opened = access::open(&source, sys::O_DIRECTORY | sys::O_NOFOLLOW);
            let folder = opened.map_err(|error| about(error, &source))?;
            DirBuilder::new().mode(0o700).create(&target).map_err(|error| about(error, &target))?;
            for entry in fs::read_dir(name_of(&folder)).map_err(|error| about(error, &source))? {
                waiting.push(way.join(entry.map_err(|error| about(error, &source))?.file_name()));
            }
            folders.push((target, metadata));
            continue;
        }
        if kind.is_symlink() {
            let made = fs::read_link(&source).and_then(|of| symlink(of, &target));
            made.map_err(|error| about(error, &target))?;
        } else if kind.is_file() {
            copy_file(&source, &target)?;
        } else {
            let message =
                format!("{}: cannot be moved to another file system: is no file, folder or link", printable(&source));
            return Err(Fault::invalid(message));
        }
        adopt(&target, &metadata).map_err(|error| about(error, &target))?;
    }
    // The deepest first: what is made in a folder changes its time, and its mode may forbid it.
    for (target, metadata) in folders.iter().rev() {
        adopt(target, metadata).map_err(|error| about(error, target))?;
    }
    Ok(())
}

fn copy_file(source: &Path, target: &Path) -> Outcome<()> {
    let flags = sys::O_NOFOLLOW | sys::O_NONBLOCK | sys::O_NOCTTY;
    let mut from: File = access::open(source, flags).map_err(|error| about(error, source))?;
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(target);
    let mut to = made.map_err(|error| about(error, target))?;
    io::copy(&mut from, &mut to).map_err(|error| about(error, target))?;
    Ok(())
}

fn adopt(path: &Path, old: &Metadata) -> io::Result<()> {
    let (folder, name) = place_of(path);
    let folder = Folder::open(folder)?;
    let name = name.as_os_str();
    let now = fs::symlink_metadata(path)?;
    let mut mode = old.mode() & 0o7777;
    if (now.uid(), now.gid()) != (old.uid(), old.gid()) {
        match folder.give(name, old.uid(), old.gid()) {
            // Rights of the old owner are not given to a new one.
            Err(error) if error.raw_os_error() == Some(sys::EPERM) => mode &= 0o1777,
            result => result?,
        }
    }
    if !old.file_type().is_symlink() {
        folder.change_mode(name, mode)?;
    }
    folder.date(name, old.mtime(), old.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Scratch {
            let path = std::env::temp_dir().join(format!("atoll-moving-{}", random_hex(8).unwrap()));
            fs::create_dir(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_existing_target_is_kept_unless_it_may_be_replaced() {
        let top = Scratch::new();
        let path = |name: &str| top.0.join(name);
        fs::write(path("a"), "a").unwrap();
        fs::write(path("b"), "b").unwrap();
        assert_eq!(move_entry(&path("a"), &path("b"), false).unwrap_err().code, "conflict");
        assert_eq!(fs::read(path("b")).unwrap(), b"b");
        move_entry(&path("a"), &path("b"), true).unwrap();
        assert_eq!(fs::read(path("b")).unwrap(), b"a");
        assert_eq!(move_entry(&path("a"), &path("c"), false).unwrap_err().code, "not_found");
        assert_eq!(move_entry(&path("b"), &path("none/c"), false).unwrap_err().code, "not_found");
        fs::create_dir_all(path("d/e")).unwrap();
        assert_eq!(move_entry(&path("d"), &path("d/e/f"), true).unwrap_err().code, "invalid_request");
        fs::create_dir_all(path("full/x")).unwrap();
        assert_eq!(move_entry(&path("d"), &path("full"), true).unwrap_err().code, "conflict");
        for name in ["/", "/..", "/tmp/.."] {
            assert_eq!(move_entry(&path("b"), Path::new(name), true).unwrap_err().code, "invalid_request");
        }
        assert!(move_by_copy(&path("d"), &path("full"), false).is_err() && path("d").exists());
    }

    #[test]
    fn a_tree_is_copied_with_what_it_is() {
        let top = Scratch::new();
        let path = |name: &str| top.0.join(name);
        fs::create_dir_all(path("from/deep/empty")).unwrap();
        let odd = path("from").join(std::ffi::OsStr::from_bytes(b"\xff\n"));
        fs::write(&odd, "odd").unwrap();
        fs::write(path("from/deep/run"), "x").unwrap();
        fs::set_permissions(path("from/deep/run"), fs::Permissions::from_mode(0o4751)).unwrap();
        symlink("/etc", path("from/link")).unwrap();
        fs::set_permissions(path("from/deep"), fs::Permissions::from_mode(0o555)).unwrap();
        let before = fs::symlink_metadata(path("from/deep/run")).unwrap();
        move_by_copy(&path("from"), &path("to"), false).unwrap();
        assert!(!path("from").exists());
        let after = fs::symlink_metadata(path("to/deep/run")).unwrap();
        assert_eq!(
            (after.mode(), after.mtime(), after.mtime_nsec()),
            (before.mode(), before.mtime(), before.mtime_nsec())
        );
        assert_eq!(fs::metadata(path("to/deep")).unwrap().mode() & 0o7777, 0o555);
        assert_eq!(fs::read_link(path("to/link")).unwrap(), Path::new("/etc"));
        assert_eq!(fs::read(path("to").join(odd.file_name().unwrap())).unwrap(), b"odd");
        fs::set_permissions(path("to/deep"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(fs::read_dir(&top.0).unwrap().count(), 1);
    }

    #[test]
    fn a_copy_that_fails_leaves_the_source_and_nothing_else() {
        let top = Scratch::new();
        let path = |name: &str| top.0.join(name);
        fs::create_dir_all(path("from/a")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("from/a/pipe")).status().unwrap().success());
        assert_eq!(move_by_copy(&path("from"), &path("to"), false).unwrap_err().code, "invalid_request");
        assert!(path("from/a/pipe").exists());
        assert_eq!(fs::read_dir(&top.0).unwrap().count(), 1);
    }
}
