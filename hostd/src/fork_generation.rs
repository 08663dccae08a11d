//! `/run/atoll/fork-generation` of a sandbox. It changes when the sandbox is no longer the one in which its memory was saved, so programs
//! know that the random numbers which they drew may exist elsewhere too.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::network::open_own_mounts;
use crate::protocol::fields::{refused, Fields, Process};
use sys::{folder::Folder, Error};

const PARENT: &str = "run";
const FOLDER: &str = "atoll";
const FILE: &str = "fork-generation";
const DIGITS: usize = 32;

#[derive(Debug)]
pub struct Write {
    process: Process,
    /// The root user of the sandbox.
    owner: u32,
    value: String,
}

impl Write {
    pub fn from_fields(fields: &mut Fields) -> Result<Write, Error> {
        let value = fields.text("value")?;
        if value.len() != DIGITS || !value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(refused(format!("value: must be {DIGITS} hex digits")));
        }
        Ok(Write { process: fields.process()?, owner: fields.number("owner")?, value })
    }
}

/// Leaves a file with this value alone, because watches report each write. Leaves the calling thread in the mount namespace of the sandbox.
pub fn write(request: &Write) -> Result<(), Error> {
    let namespace = match open_own_mounts(request.process)? {
        Some(namespace) => namespace,
        None => return Ok(()),
    };
    let root = identity(Path::new(&format!("/proc/{}/root", request.process.pid)))?;
    sys::own_folders()?;
    sys::enter_mounts(&namespace)?;
    // An OCI runtime that only changes the root of the process leaves the folders of the host in its mounts.
    if identity(Path::new("/"))? != root {
        return Err(Error::new(format!(
            "the root folder of process {} is not that of its mounts",
            request.process.pid
        )));
    }
    sys::acting_as(request.owner, || write_below(Path::new("/"), &request.value))
        .map_err(|error| Error::io("write", format!("/{PARENT}/{FOLDER}/{FILE}"), error))
}

/// Device and inode.
fn identity(path: &Path) -> Result<(u64, u64), Error> {
    let metadata = std::fs::metadata(path).map_err(|error| Error::io("stat", path.display(), error))?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The sandbox may have put anything at these names. What is mounted there may be shared with others, and is left alone (EXDEV).
fn write_below(root: &Path, value: &str) -> io::Result<()> {
    let parent = Folder::open(root)?.below(OsStr::new(PARENT))?;
    let name = OsStr::new(FOLDER);
    let folder = match parent.below(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = parent.make_folder(name)?;
            parent.change_mode(name, 0o755)?;
            folder
        }
        other => other?,
    };
    let line = format!("{value}\n");
    let name = OsStr::new(FILE);
    // In place, so that both a watch of the file and one of the folder see it.
    if let Some(file) = folder.open_file(name)? {
        return replace(&file, line.as_bytes());
    }
    if let Err(error) = folder.unlink(name) {
        if error.kind() != io::ErrorKind::NotFound {
            return Err(error);
        }
    }
    let mut file = folder.create(name)?;
    sys::entry::change_file_mode(&file, 0o644)?;
    file.write_all(line.as_bytes())
}

fn replace(file: &File, line: &[u8]) -> io::Result<()> {
    let mut found = Vec::new();
    file.take(line.len() as u64 + 1).read_to_end(&mut found)?;
    if found == line {
        return Ok(());
    }
    file.write_all_at(line, 0)?;
    file.set_len(line.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{symlink, PermissionsExt};
    use std::path::PathBuf;

    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210";

    fn root(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("atoll-generation-{}-{name}", std::process::id()));
        fs::create_dir_all(root.join("run")).unwrap();
        root
    }

    #[test]
    fn it_is_made_changed_in_place_and_left_alone() {
        let root = root("plain");
        let path = root.join("run/atoll/fork-generation");
        write_below(&root, ONE).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{ONE}\n"));
        let before = fs::metadata(&path).unwrap();
        assert_eq!(before.permissions().mode() & 0o777, 0o644);
        write_below(&root, ONE).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mtime_nsec(), before.mtime_nsec());
        fs::write(&path, "something much longer than that, which is cut off").unwrap();
        write_below(&root, OTHER).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{OTHER}\n"));
        assert_eq!(fs::metadata(&path).unwrap().ino(), before.ino());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn what_a_sandbox_puts_in_its_place_leads_nowhere() {
        let root = root("links");
        fs::create_dir(root.join("run/atoll")).unwrap();
        let (path, target) = (root.join("run/atoll/fork-generation"), root.join("target"));
        fs::write(&target, "of somebody").unwrap();
        symlink(&target, &path).unwrap();
        write_below(&root, ONE).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{ONE}\n"));
        // A pipe without a reader, which an open for writing would wait for.
        fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        write_below(&root, ONE).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        // A folder with something in it is refused, and a link as the folder.
        fs::remove_file(&path).unwrap();
        fs::create_dir_all(path.join("full")).unwrap();
        assert!(write_below(&root, ONE).is_err());
        fs::remove_dir_all(root.join("run/atoll")).unwrap();
        symlink(&root, root.join("run/atoll")).unwrap();
        assert!(write_below(&root, ONE).is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "of somebody");
        fs::remove_dir_all(&root).unwrap();
    }
}
