//! Removes folders with all that is in them. Mounts at or below a folder are detached first, because a removal through a mount would remove
//! files of a sandbox. The kernel refuses each step onto another mount (openat2(2), RESOLVE_NO_XDEV), so no table of mounts is read: it
//! grows with the sandboxes that run. A link is removed, not followed.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use sys::folder::Folder;
use sys::{Error, EBUSY, EISDIR, ENOENT, ENOTEMPTY, EXDEV};

const DEPTH_MAX: usize = 128;
/// Bounds of the mounts on one entry, and of the rounds over a folder that grows meanwhile.
const ROUNDS_MAX: usize = 1_000;

pub fn remove_folders(folders: &[PathBuf]) -> Result<(), Error> {
    folders.iter().try_for_each(|folder| remove(folder))
}

/// Harmless when nothing is there. Links and mounts in front of the last part of the path are followed.
fn remove(path: &Path) -> Result<(), Error> {
    let (parent, name) =
        path.parent().zip(path.file_name()).ok_or_else(|| failed(path, io::ErrorKind::InvalidInput.into()))?;
    match Folder::open(parent) {
        Ok(parent) => remove_entry(&parent, name, path, 0),
        Err(error) if error.raw_os_error() == Some(ENOENT) => Ok(()),
        Err(error) => Err(failed(path, error)),
    }
}

/// Removes an entry of a folder with all that is in it; `path` names it in errors.
pub fn remove_entry(parent: &Folder, name: &OsStr, path: &Path, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(Error::new(format!("remove {}: it lies too deep", path.display())));
    }
    for _ in 0..ROUNDS_MAX {
        let removed = match parent.unlink(name) {
            Err(error) if error.raw_os_error() == Some(EISDIR) => match parent.below(name) {
                Ok(folder) => {
                    empty(&folder, path, depth)?;
                    drop(folder);
                    parent.remove_folder(name)
                }
                Err(error) => Err(error),
            },
            other => other,
        };
        match removed.as_ref().map_err(io::Error::raw_os_error) {
            Ok(()) | Err(Some(ENOENT)) => return Ok(()),
            Err(Some(EXDEV)) | Err(Some(EBUSY)) => parent.unmount(name).map_err(|error| failed(path, error))?,
            Err(Some(ENOTEMPTY)) => {}
            Err(_) => return removed.map_err(|error| failed(path, error)),
        }
    }
    Err(Error::new(format!("remove {}: it is not to be emptied", path.display())))
}

fn empty(folder: &Folder, path: &Path, depth: usize) -> Result<(), Error> {
    for name in folder.names().map_err(|error| failed(path, error))? {
        remove_entry(folder, &name, &path.join(&name), depth + 1)?;
    }
    Ok(())
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::io("remove", PathBuf::from(path).display(), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// An empty folder of this test's own.
    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("atoll-hostd-remove-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("made");
        path
    }

    #[test]
    fn a_link_is_removed_and_what_it_names_stays() {
        let scratch = scratch("link");
        fs::create_dir_all(scratch.join("kept/within")).expect("made");
        fs::write(scratch.join("kept/file"), "").expect("written");
        fs::create_dir_all(scratch.join("gone/deep/deeper")).expect("made");
        fs::write(scratch.join("gone/deep/deeper/file"), "").expect("written");
        symlink(scratch.join("kept"), scratch.join("gone/deep/link")).expect("linked");
        symlink(scratch.join("kept"), scratch.join("itself")).expect("linked");
        for name in ["gone", "itself", "gone", "missing/too"] {
            assert!(remove(&scratch.join(name)).is_ok());
        }
        assert!(scratch.join("kept/file").exists() && scratch.join("kept/within").exists());
        assert!(!scratch.join("gone").exists() && fs::symlink_metadata(scratch.join("itself")).is_err());
        assert!(remove(&scratch).is_ok());
    }

    #[test]
    fn the_deepest_folder_is_removed_within_the_stack_of_a_request() {
        let scratch = scratch("deepest");
        fs::create_dir_all(scratch.join(vec!["d"; DEPTH_MAX].join("/"))).expect("made");
        let path = scratch.join("d");
        let request = std::thread::Builder::new().stack_size(crate::process::launch::STACK_BYTES);
        let removed = request.spawn(move || remove(&path)).expect("starts").join().expect("has room");
        assert!(removed.is_ok());
        fs::remove_dir_all(&scratch).expect("removed");
    }

    #[test]
    fn what_lies_too_deep_is_refused_in_words() {
        let scratch = scratch("deep");
        let deep = scratch.join(vec!["d"; DEPTH_MAX + 2].join("/"));
        fs::create_dir_all(&deep).expect("made");
        let refusal = remove(&scratch).expect_err("refused").to_string();
        assert!(refusal.contains("too deep"), "{refusal}");
        fs::remove_dir_all(&scratch).expect("removed");
    }
}
