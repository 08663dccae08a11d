//! The protected directory `/.atoll`, which the host gives to the guest: file operations refuse it. Root in the sandbox can
//! still break it; a client of the server cannot do so by mistake.

use crate::protocol::fault::{Fault, Outcome};
use std::fs;
use std::path::{Component, Path, PathBuf};

const NAME: &str = ".atoll";

/// Absent where the guest's socket lies elsewhere.
pub struct ProtectedDirectory(Option<PathBuf>);

impl ProtectedDirectory {
    pub fn of_socket(socket: &Path) -> ProtectedDirectory {
        let folder = socket.ancestors().find(|folder| folder.file_name().map_or(false, |name| name == NAME));
        ProtectedDirectory(folder.map(resolve))
    }

    pub fn is(&self, path: &Path) -> bool {
        self.0.as_deref() == Some(path)
    }

    /// Its path below a folder that is named without links.
    pub fn below(&self, folder: &Path) -> Option<&Path> {
        self.0.as_ref()?.strip_prefix(folder).ok()
    }

    /// For a path that is about to be created or replaced.
    pub fn refuse_inside(&self, path: &Path) -> Outcome<()> {
        match &self.0 {
            Some(own) if location_of(path).starts_with(own) => Err(refusal(path)),
            _ => Ok(()),
        }
    }

    /// For a path that is about to be removed with its content.
    pub fn refuse_holding(&self, path: &Path) -> Outcome<()> {
        match &self.0 {
            Some(own) if own.starts_with(location_of(path)) => Err(refusal(path)),
            _ => self.refuse_inside(path),
        }
    }
}

fn refusal(path: &Path) -> Fault {
    Fault::invalid(format!("{}: belongs to the sandbox itself", path.display()))
}

/// The location of an entry: follows links of its parents, not the entry itself.
fn location_of(path: &Path) -> PathBuf {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => resolve(parent).join(name),
        _ => resolve(path),
    }
}

/// The path without links and dots; missing parts are taken literally.
fn resolve(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(mut real), Ok(rest)) = (fs::canonicalize(ancestor), path.strip_prefix(ancestor)) {
            let mut back = false;
            for component in rest.components() {
                match component {
                    Component::ParentDir => {
                        real.pop();
                        back = true;
                    }
                    Component::Normal(name) => real.push(name),
                    _ => {}
                }
            }
            // After `missing/..` there may be links again; without `..` there are none left.
            return if back { resolve(&real) } else { real };
        }
    }
    path.to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::uploads::random_hex;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_folder_is_found_by_any_name() {
        let root = std::env::temp_dir().join(format!("atoll-own-{}", random_hex(8).unwrap()));
        fs::create_dir_all(root.join(".atoll/run")).unwrap();
        symlink(root.join(".atoll"), root.join("link")).unwrap();
        let own = ProtectedDirectory::of_socket(&root.join(".atoll/run/guest.sock"));
        for name in [
            ".atoll",
            ".atoll/run",
            ".atoll/new/x",
            "link/run",
            "missing/../.atoll/x",
            "missing/../link/x/y",
            ".atoll/run/..",
            ".atoll/.",
        ] {
            let path = root.join(name);
            assert_eq!(own.refuse_inside(&path).unwrap_err().code, "invalid_request", "{}", name);
            assert_eq!(own.refuse_holding(&path).unwrap_err().code, "invalid_request", "{}", name);
        }
        for name in ["link", ".atollx", "x/.atoll", ".atoll/../x", ".x.atoll-00"] {
            assert!(own.refuse_holding(&root.join(name)).is_ok(), "{}", name);
        }
        assert!(own.refuse_inside(&root).is_ok() && own.refuse_holding(&root).is_err());
        assert!(ProtectedDirectory::of_socket(Path::new("/tmp/guest.sock"))
            .refuse_inside(Path::new("/.atoll"))
            .is_ok());
        fs::remove_dir_all(root).unwrap();
    }
}
