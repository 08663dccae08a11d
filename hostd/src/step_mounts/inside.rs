//! The mounts of a sandbox, from inside: the calling thread is in its mount namespace, and the sandbox changes names meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::target;
use crate::mounts::{parse, Mount};
use crate::network::open_own_mounts;
use crate::protocol::fields::Process;
use sys::folder::Folder;
use sys::{Code, Error};

/// Each is spoilt by a rename in the sandbox at the right moment.
const LOOKS: usize = 64;

pub struct Inside {
    root: Folder,
    owner: u32,
    /// The folder of this thread in the host's `/proc`, which the sandbox does not have.
    thread: Folder,
}

/// A mount point by the folder that it is in: no name above it matters any more.
struct Found {
    point: PathBuf,
    parent: Folder,
    name: OsString,
    top: File,
}

impl Inside {
    /// Moves the calling thread into the mount namespace of a sandbox, by the process that is its first.
    pub fn enter(process: Process, owner: u32) -> Result<Inside, Error> {
        let no_mounts = || Error::new(format!("process {} has no mounts of its own", process.pid));
        let namespace = open_own_mounts(process)?.ok_or_else(no_mounts)?;
        let expected = identity(Path::new(&format!("/proc/{}/root", process.pid)))?;
        let thread = open_folder("/proc/thread-self")?;
        sys::own_folders()?;
        sys::enter_mounts(&namespace)?;
        // An OCI runtime that only changes the root of the process leaves the folders of the host in its mounts.
        if identity(Path::new("/"))? != expected {
            return Err(Error::new(format!("the root folder of process {} is not that of its mounts", process.pid)));
        }
        Ok(Inside { root: open_folder("/")?, owner, thread })
    }

    pub fn attach(&self, tree: &OwnedFd, target: &Path, is_file: bool) -> Result<usize, Error> {
        let path_of = |file: &File| self.path_of(file);
        sys::acting_as(self.owner, || {
            let place = target::make(&self.root, target, is_file, &path_of)?;
            match sys::attach_tree_on(tree, &place.entry) {
                Ok(()) => Ok(place.made()),
                Err(error) => {
                    place.undo(is_file);
                    Err(Error::io("mount on", target.display(), error))
                }
            }
        })
    }

    pub fn detach(&self, mount: u64, made: usize) -> Result<(), Error> {
        let found = match self.find(mount)? {
            Some(found) => found,
            None => return Ok(()),
        };
        let failed = |error| Error::io("unmount", found.point.display(), error);
        let is_file = !found.top.metadata().map_err(failed)?.is_dir();
        sys::detach_in(&found.parent, &found.name).map_err(failed)?;
        drop(found.top);
        sys::acting_as(self.owner, || target::remove(&self.root, &found.parent, &found.point, made, is_file));
        Ok(())
    }

    pub fn seal(&self, mount: u64) -> Result<(), Error> {
        let gone = || Error::new("the mount is gone");
        let found = self.find(mount)?.ok_or_else(gone)?;
        sys::seal_tree(&OwnedFd::from(found.top), None, &found.point)
    }

    /// `None`: it is gone. While it is mounted, the sandbox can neither rename nor remove what it is mounted on.
    fn find(&self, mount: u64) -> Result<Option<Found>, Error> {
        for _ in 0..LOOKS {
            let mounts = self.mounts()?;
            let id = mount.to_string();
            let point = match mounts.iter().find(|mount| mount.id == id) {
                Some(mount) => mount.point.clone(),
                None => return Ok(None),
            };
            if let Ok(Some(found)) = self.look(point.clone(), mount) {
                return Ok(Some(found));
            }
            let covers = |other: &&Mount| other.point == point;
            if mounts.iter().rfind(covers).map_or(false, |top| top.id != id) {
                return Err(Error::with(Code::Busy, format!("something is mounted on top of {}", point.display())));
            }
        }
        Err(Error::with(Code::Busy, "the folders above the mount are renamed all the time"))
    }

    fn look(&self, point: PathBuf, mount: u64) -> io::Result<Option<Found>> {
        let (parent, name) = match (point.parent(), point.file_name()) {
            (Some(parent), Some(name)) => (parent, name.to_os_string()),
            _ => return Ok(None),
        };
        let parent = Folder::from(OwnedFd::from(self.root.resolve_strictly(parent.as_os_str())?));
        let top = parent.look_over(&name)?;
        let is_it = self.mount_of(&top).map_or(false, |found| found == mount);
        Ok(Some(Found { point, parent, name, top }).filter(|_| is_it))
    }

    /// The number of the mount that a descriptor is of.
    pub fn mount_of(&self, file: &impl AsRawFd) -> Result<u64, Error> {
        let name = format!("fdinfo/{}", file.as_raw_fd());
        let text = self.read(OsStr::new(&name))?;
        let text = String::from_utf8_lossy(&text);
        let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        id.and_then(|id| id.trim().parse().ok()).ok_or_else(|| Error::new(format!("{name} tells no mount")))
    }

    /// Where a descriptor leads, as the sandbox would say it.
    fn path_of(&self, file: &File) -> io::Result<PathBuf> {
        let name = format!("fd/{}", file.as_raw_fd());
        self.thread.read_link(OsStr::new(&name)).map(PathBuf::from)
    }

    fn mounts(&self) -> Result<Vec<Mount>, Error> {
        self.read(OsStr::new("mountinfo")).map(|text| parse(&text))
    }

    fn read(&self, name: &OsStr) -> Result<Vec<u8>, Error> {
        let mut text = Vec::new();
        let read = self.thread.read(name).and_then(|mut file| file.read_to_end(&mut text));
        read.map(|_| text).map_err(|error| Error::io("read", name.to_string_lossy(), error))
    }
}

fn open_folder(path: &str) -> Result<Folder, Error> {
    Folder::open(Path::new(path)).map_err(|error| Error::io("open", path, error))
}

/// Device and inode.
fn identity(path: &Path) -> Result<(u64, u64), Error> {
    let metadata = std::fs::metadata(path).map_err(|error| Error::io("stat", path.display(), error))?;
    Ok((metadata.dev(), metadata.ino()))
}
