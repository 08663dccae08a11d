//! The origin attributes of an upper layer: for each file and folder that overlay copied up, the position of the original on the disk. They
//! are wrong above lower layers at another position: overlay hides the lower half of a folder with a wrong attribute, but creates a missing
//! one of a folder again.

use std::env;
use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sys::Error;

const ORIGIN: &str = "trusted.overlay.origin";

/// Removes the attributes of a folder and its content. The tree must not change meanwhile. A hostile tree can be deeper than the
/// longest path, so the walk goes folder by folder.
pub fn forget(dir: &Path) -> Result<(), Error> {
    let failed = |error| Error::io("forget origins in", dir.display(), error);
    let origin = CString::new(ORIGIN).expect("constant");
    env::set_current_dir(dir).map_err(failed)?;
    let mut left = vec![forget_here(&origin).map_err(failed)?];
    while let Some(folders) = left.last_mut() {
        if let Some(folder) = folders.pop() {
            env::set_current_dir(&folder).map_err(failed)?;
            left.push(forget_here(&origin).map_err(failed)?);
        } else {
            left.pop();
            if !left.is_empty() {
                env::set_current_dir("..").map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// Removes the attributes of the current folder and its entries, and returns its folders.
fn forget_here(origin: &CString) -> io::Result<Vec<OsString>> {
    let mut folders = Vec::new();
    sys::remove_attribute(&CString::new(".").expect("constant"), origin)?;
    for entry in fs::read_dir(".")? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.file_name());
        } else {
            sys::remove_attribute(&CString::new(entry.file_name().as_bytes())?, origin)?;
        }
    }
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_deeper_than_the_longest_path_is_walked() {
        let root = env::temp_dir().join(format!("atoll-origins-{}", std::process::id()));
        fs::create_dir(&root).expect("a folder");
        let name = "x".repeat(200);
        // The whole process has one current folder, and no other test changes it.
        env::set_current_dir(&root).expect("there");
        for _ in 0..40 {
            fs::create_dir(&name).expect("a folder");
            env::set_current_dir(&name).expect("there");
        }
        std::os::unix::fs::symlink("/", "link").expect("a link");
        let walked = forget(&root);
        env::set_current_dir("/").expect("there");
        fs::remove_dir_all(&root).expect("removed");
        assert!(walked.is_ok());
        assert!(forget(Path::new("/no/such/folder")).is_err());
    }
}
