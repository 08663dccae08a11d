//! Mounts in a running sandbox for one step of a build. A mount is known by the number that the kernel gives it, which is in no other use
//! while the mount exists; the sandbox may have renamed the folders above it, but can move neither the mount nor what it is mounted on.

mod inside;
mod target;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::io::OwnedFd;
use std::path::{Path, PathBuf};

use crate::mounts::enter_without;
use crate::protocol::fields::{refused, Fields, Process};
use crate::protocol::request::range;
use inside::Inside;
use sys::folder::Folder;
use sys::Error;

const PAGE_BYTES: u64 = 4096;
/// Room for files of this size on average, as in the memory that the kernel takes for each.
const BYTES_PER_INODE: u64 = 1024;
const INODES_MIN: u64 = 16;
const SECRET: &str = "secret";
const ANY_EXEC: u32 = 0o111;

/// Where something is mounted.
#[derive(Debug)]
struct Place {
    process: Process,
    /// The root user of the sandbox, to whom belongs what is made for the target.
    owner: u32,
    /// As the sandbox sees it.
    target: PathBuf,
}

impl Place {
    fn from_fields(fields: &mut Fields) -> Result<Place, Error> {
        Ok(Place { process: fields.process()?, owner: fields.number("owner")?, target: fields.path("target")? })
    }

    /// The number of the new mount, and how many entries were made for it.
    fn attach(&self, tree: OwnedFd, is_file: bool) -> Result<String, Error> {
        let inside = Inside::enter(self.process, self.owner)?;
        let mount = inside.mount_of(&tree)?;
        let made = inside.attach(&tree, &self.target, is_file)?;
        Ok(format!("{mount} {made}\n"))
    }
}

/// A folder of the host, or a part of it: ids `0..count` on disk are those of the sandbox.
#[derive(Debug)]
pub struct AttachFolder {
    place: Place,
    source: PathBuf,
    /// A path in the source, into which a sandbox writes.
    part: Option<String>,
    range: (u32, u32),
    read_only: bool,
}

impl AttachFolder {
    pub fn from_fields(fields: &mut Fields) -> Result<AttachFolder, Error> {
        Ok(AttachFolder {
            place: Place::from_fields(fields)?,
            source: fields.path("source")?,
            part: fields.has("part").then(|| fields.text("part")).transpose()?,
            range: range(fields)?,
            read_only: fields.flag("readOnly")?,
        })
    }
}

pub fn attach_folder(request: &AttachFolder) -> Result<String, Error> {
    let AttachFolder { place, source, part, range: (start, count), read_only } = request;
    let (tree, is_file) = match part {
        None => (sys::clone_tree(source)?, false),
        Some(part) => part_of(source, part)?,
    };
    let flags = sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV;
    let flags = if *read_only { flags | sys::MOUNT_ATTR_RDONLY } else { flags };
    let namespace = sys::user_namespace(0, *start, *count)?;
    sys::set_tree(&tree, flags, Some(&namespace), source)?;
    place.attach(tree, is_file)
}

/// Follows no link and leaves no mount: the sandbox can have made anything there.
fn part_of(source: &Path, part: &str) -> Result<(OwnedFd, bool), Error> {
    let failed = |error| Error::io("look at", part, error);
    let folder = Folder::open(source).map_err(failed)?;
    let found =
        folder.look(part.as_ref()).map_err(|error| target::fault(part, &error).unwrap_or_else(|| failed(error)))?;
    let kind = found.metadata().map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(target::wrong(part, "is neither a file nor a folder"));
    }
    Ok((sys::clone_tree_of(&found).map_err(failed)?, kind.is_file()))
}

#[derive(Debug)]
pub struct AttachTmpfs {
    place: Place,
    /// A folder that always exists, the mounts below which the new namespace lacks.
    hide: PathBuf,
    bytes: u64,
}

impl AttachTmpfs {
    pub fn from_fields(fields: &mut Fields) -> Result<AttachTmpfs, Error> {
        Ok(AttachTmpfs {
            place: Place::from_fields(fields)?,
            hide: fields.path("hide")?,
            bytes: fields.number("bytes")?,
        })
    }
}

pub fn attach_tmpfs(request: &AttachTmpfs) -> Result<String, Error> {
    let AttachTmpfs { place, hide, bytes } = request;
    let owner = place.owner;
    let inodes = (bytes / BYTES_PER_INODE).max(INODES_MIN);
    let size = (*bytes).max(PAGE_BYTES);
    let flags = sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV;
    mount_memory(hide, &format!("size={size},nr_inodes={inodes},mode=1777,uid={owner},gid={owner}"))?;
    let tree = sys::clone_tree(hide)?;
    sys::set_private_tree(&tree, flags, hide)?;
    place.attach(tree, false)
}

/// Its content is printed nowhere.
pub struct AttachSecret {
    place: Place,
    hide: PathBuf,
    content: Vec<u8>,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl std::fmt::Debug for AttachSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttachSecret").field("place", &self.place).finish_non_exhaustive()
    }
}

impl AttachSecret {
    pub fn from_fields(fields: &mut Fields) -> Result<AttachSecret, Error> {
        Ok(AttachSecret {
            place: Place::from_fields(fields)?,
            hide: fields.path("hide")?,
            content: bytes(&fields.text("content")?)?,
            mode: fields.number("mode")?,
            uid: fields.number("uid")?,
            gid: fields.number("gid")?,
        })
    }
}

pub fn attach_secret(request: &AttachSecret) -> Result<String, Error> {
    let AttachSecret { place, hide, content, mode, uid, gid } = request;
    let size = content.len() as u64 / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES;
    let options = format!("size={size},nr_inodes={INODES_MIN},mode=0700");
    // Linux 6.4 and later.
    mount_memory(hide, &format!("{options},noswap")).or_else(|_| mount_memory(hide, &options))?;
    let file = hide.join(SECRET);
    write_secret(&file, content, *mode, *uid, *gid).map_err(|error| Error::io("write", SECRET, error))?;
    let tree = sys::clone_tree(&file)?;
    let flags = sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV | sys::MOUNT_ATTR_RDONLY;
    let flags = if mode & ANY_EXEC == 0 { flags | sys::MOUNT_ATTR_NOEXEC } else { flags };
    sys::set_private_tree(&tree, flags, &file)?;
    place.attach(tree, true)
}

fn write_secret(file: &Path, content: &[u8], mode: u32, uid: u32, gid: u32) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(content)?;
    sys::fchown(&file, uid, gid)?;
    sys::entry::change_file_mode(&file, mode)
}

/// Mounts a tmpfs on `hide` where nobody else sees it: in a mount namespace of this thread alone, which ends with the thread at the latest.
fn mount_memory(hide: &Path, options: &str) -> Result<(), Error> {
    enter_without(hide)?;
    sys::mount_at("tmpfs", hide, sys::MS_NOSUID | sys::MS_NODEV, options)
}

#[derive(Debug)]
pub struct Detach {
    process: Process,
    owner: u32,
    mount: u64,
    made: usize,
}

impl Detach {
    pub fn from_fields(fields: &mut Fields) -> Result<Detach, Error> {
        Ok(Detach {
            process: fields.process()?,
            owner: fields.number("owner")?,
            mount: fields.number("mount")?,
            made: fields.number("made")?,
        })
    }
}

/// Harmless for a mount that is gone.
pub fn detach(request: &Detach) -> Result<(), Error> {
    Inside::enter(request.process, request.owner)?.detach(request.mount, request.made)
}

/// Makes a mount read-only. EBUSY while a file of it is open for writing.
pub fn seal(process: Process, mount: u64) -> Result<(), Error> {
    Inside::enter(process, 0)?.seal(mount)
}

/// From two hexadecimal digits for each.
fn bytes(digits: &str) -> Result<Vec<u8>, Error> {
    let wrong = || refused("content: must be bytes in hexadecimal");
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some((char::from(*high).to_digit(16)? << 4 | char::from(*low).to_digit(16)?) as u8),
        _ => None,
    };
    digits.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_in_hexadecimal_and_not_printed() {
        assert_eq!(bytes("00ff7Aa0").ok(), Some(vec![0, 255, 0x7a, 0xa0]));
        assert_eq!(bytes("").ok(), Some(vec![]));
        for text in ["0", "0g", "+1", "é"] {
            assert_eq!(bytes(text).expect_err("refused").to_string(), "content: must be bytes in hexadecimal");
        }
        let text = r#"{"process":{"pid":7,"startTicks":90},"owner":1,"target":"/t","hide":"/h","content":"73656372","mode":256,"uid":0,"gid":0}"#;
        let request = AttachSecret::from_fields(&mut Fields::parse(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(request.content, b"secr");
        let shown = format!("{request:?}");
        assert!(!shown.contains("115") && !shown.contains("7365") && !shown.contains("content"), "{shown}");
    }
}
