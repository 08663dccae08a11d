//! Holds back the processes that a restore brings into a sandbox, until the programs of its hooks have run. CRIU calls this when all
//! processes exist and none has run on. All but the first move to a control group of their own, which stays frozen until the server thaws
//! it (`Cgroups.thaw`).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::freeze::{members, Freezer};
use sys::{folder::Folder, Error};

/// The name of the group, below that of the sandbox. The limits of the sandbox hold in it too.
const GROUP: &str = "held";

pub fn hold_back(first: i32, hooks: &Path, groups: &[PathBuf]) -> Result<(), Error> {
    if !has_folder(&PathBuf::from(format!("/proc/{first}/root")), hooks) {
        return Ok(());
    }
    hold(&Freezer::of(groups)?, first)
}

fn hold(freezer: &Freezer, first: i32) -> Result<(), Error> {
    let held = freezer.group().join(GROUP);
    fs::create_dir(&held).map_err(|error| Error::io("mkdir", held.display(), error))?;
    let own = namespace_of("self");
    for pid in members(&[freezer.group().to_path_buf()]) {
        // CRIU itself, and the program that brings memory, are in the sandbox's group too.
        let is_inside = pid != first && namespace_of(&pid.to_string()) != own;
        // A process that has ended cannot be moved.
        if is_inside
            && fs::write(held.join("cgroup.procs"), pid.to_string()).is_err()
            && Path::new(&format!("/proc/{pid}/exe")).exists()
        {
            return Err(Error::new(format!("process {pid} cannot be held back")));
        }
    }
    freezer.with_group(held).begin()
}

/// The pid namespace of a process.
fn namespace_of(process: &str) -> Option<u64> {
    fs::metadata(format!("/proc/{process}/ns/pid")).ok().map(|metadata| metadata.ino())
}

/// Follows no link, which could lead out of the sandbox.
fn has_folder(root: &Path, path: &Path) -> bool {
    let names = path.iter().filter(|name| *name != OsStr::new("/"));
    let mut folder = Folder::open(root);
    for name in names {
        folder = folder.and_then(|folder| folder.below(name));
    }
    folder.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_looked_for_without_links() {
        let root = std::env::temp_dir().join(format!("atoll-hold-{}", std::process::id()));
        fs::create_dir_all(root.join("etc/atoll/on-fork.d")).unwrap();
        let path = Path::new("/etc/atoll/on-fork.d");
        assert!(has_folder(&root, path));
        fs::rename(root.join("etc/atoll"), root.join("etc/other")).unwrap();
        assert!(!has_folder(&root, path));
        std::os::unix::fs::symlink("other", root.join("etc/atoll")).unwrap();
        assert!(!has_folder(&root, path));
        fs::remove_dir_all(&root).unwrap();
    }
}
