//! Removes a tree without following symbolic links, at any depth, with two open folders at a time.

use crate::fault::{Fault, Outcome};
use crate::files::about;
use crate::sys;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::io::AsRawFd;
use std::path::{Component, Path, PathBuf};

/// A folder on the way down: its name in its parent, and which folder the parent was.
struct Step {
    name: OsString,
    parent: (u64, u64),
}

pub fn remove(path: &Path) -> Outcome<()> {
    match path.components().next_back() {
        Some(Component::Normal(_)) => {}
        _ => return Err(Fault::invalid("path: must name something below the root")),
    }
    let metadata = fs::symlink_metadata(path).map_err(|error| about(error, path))?;
    if !metadata.is_dir() {
        return fs::remove_file(path).map_err(|error| about(error, path));
    }
    remove_folder(path).map_err(|error| about(error, path))
}

fn remove_folder(path: &Path) -> io::Result<()> {
    let mut folder = open_folder(path)?;
    let mut steps: Vec<Step> = Vec::new();
    loop {
        if let Some(name) = remove_files(&folder)? {
            let parent = identity(&folder)?;
            folder = open_folder(&inside(&folder).join(&name))?;
            steps.push(Step { name, parent });
            continue;
        }
        let step = match steps.pop() {
            Some(step) => step,
            None => return fs::remove_dir(path),
        };
        let parent = open_folder(&inside(&folder).join(".."))?;
        if identity(&parent)? != step.parent {
            // Moved meanwhile: what is above now is not ours to remove.
            return Err(io::Error::new(io::ErrorKind::Other, "moved while it was removed"));
        }
        fs::remove_dir(inside(&parent).join(&step.name))?;
        folder = parent;
    }
}

/// Removes all but folders; returns the first folder, if there is one.
fn remove_files(folder: &File) -> io::Result<Option<OsString>> {
    let path = inside(folder);
    let mut first = None;
    for entry in fs::read_dir(&path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            first.get_or_insert(entry.file_name());
        } else {
            match fs::remove_file(path.join(entry.file_name())) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(first)
}

/// Paths through an open folder are not led astray by who renames its parents.
fn inside(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
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
    fn the_root_and_dots_are_not_removed() {
        for path in ["/", "//", "/..", "/tmp/.."] {
            assert_eq!(remove(Path::new(path)).unwrap_err().code, "invalid_request", "{}", path);
        }
    }
}
