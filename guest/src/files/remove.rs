//! Removes a tree without following symbolic links, at any depth and width, with two open folders at a time.

use crate::files::about;
use crate::files::access::{self, name_of};
use crate::protocol::fault::{Fault, Outcome};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path};

/// Bound of the remembered names of folders. A folder whose name is not remembered costs another reading of its parent.
const NAMES_MAX: usize = 16 * 1024;
/// One folder may use this part of the free names, so that the folders below it have some too.
const SHARE: usize = 16;

/// A folder on the way down: its name, the device and inode of its parent, and the names that are still to be removed from the parent.
struct Step {
    name: OsString,
    parent: (u64, u64),
    siblings: Vec<OsString>,
}

pub fn remove(path: &Path) -> Outcome<()> {
    match path.components().next_back() {
        Some(Component::Normal(_)) => {}
        _ => return Err(Fault::invalid("path: must name something below the root")),
    }
    // A user may take no way through a link of `/proc/PID/fd` (`access::open`).
    let parent = path.parent().unwrap_or_else(|| Path::new("/"));
    access::metadata(parent).map_err(|error| about(error, path))?;
    let metadata = fs::symlink_metadata(path).map_err(|error| about(error, path))?;
    if !metadata.is_dir() {
        return fs::remove_file(path).map_err(|error| about(error, path));
    }
    remove_folder(path).map_err(|error| about(error, path))
}

fn remove_folder(path: &Path) -> io::Result<()> {
    let mut folder = open_folder(path)?;
    let mut steps: Vec<Step> = Vec::new();
    // The remaining names of `folder`; `steps` has those of its parents.
    let mut names: Vec<OsString> = Vec::new();
    let mut remembered = 0;
    loop {
        let fresh = names.is_empty();
        if fresh {
            names = remove_files(&folder, 1 + (NAMES_MAX - remembered) / SHARE)?;
            remembered += names.len();
        }
        if let Some(name) = names.pop() {
            remembered -= 1;
            let parent = identity(&folder)?;
            match open_folder(&name_of(&folder).join(&name)) {
                Ok(below) => {
                    folder = below;
                    steps.push(Step { name, parent, siblings: mem::take(&mut names) });
                }
                // Another process has removed or replaced the entry since `folder` was read. `folder` is read again at the end.
                Err(error) if !fresh && is_no_folder(&error) => {}
                Err(error) => return Err(error),
            }
            continue;
        }
        let step = match steps.pop() {
            Some(step) => step,
            None => return fs::remove_dir(path),
        };
        let parent = open_folder(&name_of(&folder).join(".."))?;
        if identity(&parent)? != step.parent {
            // The folder was moved meanwhile: its new parent is not ours to remove.
            return Err(io::Error::new(io::ErrorKind::Other, "moved while it was removed"));
        }
        fs::remove_dir(name_of(&parent).join(&step.name))?;
        folder = parent;
        names = step.siblings;
    }
}

/// Removes all entries but folders; returns the names of at most `most` folders.
fn remove_files(folder: &File, most: usize) -> io::Result<Vec<OsString>> {
    let path = name_of(folder);
    let mut folders = Vec::new();
    for entry in fs::read_dir(&path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            if folders.len() < most {
                folders.push(entry.file_name());
            }
        } else {
            match fs::remove_file(path.join(entry.file_name())) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(folders)
}

fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(2 | 20 | 40)) // ENOENT, ENOTDIR, ELOOP
}

fn open_folder(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(sys::O_DIRECTORY | sys::O_NOFOLLOW).open(path)
}

fn identity(folder: &File) -> io::Result<(u64, u64)> {
    let metadata = folder.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_folders_are_removed_than_are_remembered_at_any_level() {
        let root = std::env::temp_dir().join(format!("atoll-remove-{}", std::process::id()));
        let mut place = root.clone();
        // Each level has more folders than the one above may remember of its own.
        for level in 0..3 {
            for index in 0..1500 {
                fs::create_dir_all(place.join(index.to_string())).unwrap();
            }
            fs::write(place.join("file"), "").unwrap();
            place = place.join((level * 700).to_string());
        }
        remove(&root).unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn what_lies_beside_a_folder_is_not_read_again_for_each() {
        let root = std::env::temp_dir().join(format!("atoll-remove-names-{}", std::process::id()));
        for index in 0..100 {
            fs::create_dir_all(root.join(index.to_string())).unwrap();
        }
        fs::write(root.join("file"), "").unwrap();
        let folder = open_folder(&root).unwrap();
        assert_eq!(remove_files(&folder, 40).unwrap().len(), 40);
        assert_eq!(remove_files(&folder, 4000).unwrap().len(), 100);
        assert!(!root.join("file").exists());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_root_and_dots_are_not_removed() {
        for path in ["/", "//", "/..", "/tmp/.."] {
            assert_eq!(remove(Path::new(path)).unwrap_err().code, "invalid_request", "{}", path);
        }
    }
}
