//! Packs entries as a tar. The kernel follows no link below an entry and crosses no mount (`sys::folder`), and memory is bounded whatever the
//! sandbox does to the tree meanwhile: a name at a time of each open level, one piece of one file, and the names of files that have several.

use crate::files::about;
use crate::files::access::{self, name_of};
use crate::files::archive_frames::Outgoing;
use crate::files::protected::ProtectedDirectory;
use crate::protocol::bytes::printable;
use crate::protocol::fault::{Fault, Outcome};
use crate::protocol::frame::{self, kind};
use crate::protocol::request::Request;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::vec;
use sys::entry::{attribute, attribute_names};
use sys::folder::Folder;
use tar::{Device, Entry, Kind, ATTRIBUTE_BYTES_MAX};

/// Of all frames that name entries.
const REQUEST_BYTES_MAX: usize = 32 << 20;
const ITEM_COST: usize = 64;
const PATH_BYTES_MAX: usize = 4095;
/// Names of the folders that are open at a time. One of a million files has some.
const NAMES_BYTES_MAX: usize = 96 << 20;
/// Files with several names that are remembered; beyond, each name gets the content.
const LINKS_BYTES_MAX: usize = 32 << 20;
/// XATTR_LIST_MAX and XATTR_SIZE_MAX of the kernel.
const ATTRIBUTE_MAX: usize = 64 << 10;

pub struct Source {
    path: PathBuf,
    name: Vec<u8>,
    is_shallow: bool,
}

pub struct Packing {
    pub sources: Vec<Source>,
    /// Paths that are left out with all below.
    skip: HashSet<Vec<u8>>,
    pub follows_first: bool,
    pub bytes_max: Option<u64>,
}

impl Packing {
    /// Reads the frames of entries that the client sends behind the answer line.
    pub fn read(follows_first: bool, bytes_max: Option<u64>, reader: &mut impl Read) -> Outcome<Option<Packing>> {
        let mut packing = Packing { sources: Vec::new(), skip: HashSet::new(), follows_first, bytes_max };
        let (mut payload, mut bytes) = (Vec::new(), 0);
        loop {
            match frame::read_frame(reader, &mut payload)? {
                Some(kind::ENTRIES) => {
                    let text = std::str::from_utf8(&payload).map_err(|_| Fault::invalid("entries: not UTF-8"))?;
                    let list = json::parse(text).map_err(|fault| Fault::invalid(format!("entries: {}", fault)))?;
                    let items = list.as_list().ok_or_else(|| Fault::invalid("entries: must be a list"))?;
                    bytes += payload.len() + items.len() * ITEM_COST;
                    if bytes > REQUEST_BYTES_MAX {
                        return Err(Fault::too_large("entries: too many"));
                    }
                    for item in items {
                        packing.add(&Request(item.clone()))?;
                    }
                }
                Some(kind::END) => return Ok(Some(packing)),
                Some(_) => return Err(Fault::invalid("unknown frame type")),
                None => return Ok(None),
            }
        }
    }

    fn add(&mut self, item: &Request) -> Outcome<()> {
        if item.present("skip").or_else(|| item.present("skipBase64")).is_some() {
            let path = item.path_of("skip", "skipBase64")?;
            self.skip.insert(trimmed(path.into_os_string().into_vec()));
            return Ok(());
        }
        let name = item.bytes_of("name", "nameBase64")?;
        let is_odd = name.split(|&byte| byte == b'/').any(|part| matches!(part, b"" | b"." | b".."));
        if name.contains(&0) || name.len() > PATH_BYTES_MAX || (is_odd && !name.is_empty()) {
            return Err(Fault::invalid("name: must be relative, without dots, of at most 4095 bytes"));
        }
        self.sources.push(Source { path: item.path()?, name, is_shallow: item.flag("shallow")? });
        Ok(())
    }
}

/// Without slashes at the end.
fn trimmed(mut path: Vec<u8>) -> Vec<u8> {
    while path.len() > 1 && path.last() == Some(&b'/') {
        path.pop();
    }
    path
}

pub fn pack(packing: &Packing, protected: &ProtectedDirectory, writer: &mut impl Write) -> Outcome<()> {
    let frames = Outgoing::new(writer, packing.bytes_max);
    let mut packer = Packer { packing, protected, frames, links: HashMap::new(), links_bytes: 0, names_bytes: 0 };
    for source in &packing.sources {
        packer.source(source)?;
    }
    packer.frames.end()
}

struct Packer<'a, W: Write> {
    packing: &'a Packing,
    protected: &'a ProtectedDirectory,
    frames: Outgoing<'a, W>,
    /// By device and inode: the first name, and how many further ones there are.
    links: HashMap<(u64, u64), (Vec<u8>, u64)>,
    links_bytes: usize,
    names_bytes: usize,
}

/// A folder on the way down, by its path below the entry, and what is still to be packed of it.
struct Level {
    path: PathBuf,
    names: vec::IntoIter<OsString>,
    names_bytes: usize,
}

impl<W: Write> Packer<'_, W> {
    fn source(&mut self, source: &Source) -> Outcome<()> {
        let path = &source.path;
        let follow = if self.packing.follows_first { 0 } else { sys::O_NOFOLLOW };
        let node = access::open(path, sys::O_PATH | follow).map_err(|error| about(error, path))?;
        let metadata = node.metadata().map_err(|error| about(error, path))?;
        if self.is_left_out(path.as_os_str().as_bytes()) {
            return Ok(());
        }
        if metadata.is_dir() {
            let opened = Folder::open(&name_of(&node)).map_err(|error| about(error, path))?;
            return self.tree(opened, source);
        }
        if source.name.is_empty() {
            return Err(Fault::invalid(format!("{}: is no folder, so it needs a name", printable(path))));
        }
        self.node(&node, &metadata, source.name.clone(), path)
    }

    fn is_left_out(&self, path: &[u8]) -> bool {
        self.packing.skip.contains(path) || self.protected.is(Path::new(OsStr::from_bytes(path)))
    }

    fn tree(&mut self, top: Folder, source: &Source) -> Outcome<()> {
        self.folder(&top, source.name.clone(), &source.path)?;
        if source.is_shallow {
            return Ok(());
        }
        let mut levels = vec![self.level(&top, PathBuf::new(), &source.path)?];
        let mut here = reopened(&top, Path::new("")).map_err(|error| about(error, &source.path))?;
        while let Some(level) = levels.last_mut() {
            let name = match level.names.next() {
                Some(name) => name,
                None => {
                    self.names_bytes -= level.names_bytes;
                    levels.pop();
                    if let Some(parent) = levels.last() {
                        let failed = |error| about(error, &source.path.join(&parent.path));
                        here = reopened(&top, &parent.path).map_err(failed)?;
                    }
                    continue;
                }
            };
            let below = level.path.join(&name);
            let path = source.path.join(&below);
            if self.is_left_out(path.as_os_str().as_bytes()) {
                continue;
            }
            let archived = archived_name(&source.name, &below);
            if archived.len() > PATH_BYTES_MAX || below.as_os_str().len() > PATH_BYTES_MAX {
                return Err(Fault::invalid(format!("{}: the name or the path is too long", printable(&path))));
            }
            let node = match here.look(&name) {
                Ok(node) => node,
                // Another process has removed it.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) if error.raw_os_error() == Some(sys::EXDEV) => {
                    self.mount_point(&here, &name, archived)?;
                    continue;
                }
                Err(error) => return Err(about(error, &path)),
            };
            let metadata = node.metadata().map_err(|error| about(error, &path))?;
            if !metadata.is_dir() {
                self.node(&node, &metadata, archived, &path)?;
                continue;
            }
            let folder = match here.below(&name) {
                Ok(folder) => folder,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(about(error, &path)),
            };
            self.folder(&folder, archived, &path)?;
            levels.push(self.level(&folder, below, &path)?);
            here = folder;
        }
        Ok(())
    }

    fn level(&mut self, folder: &Folder, below: PathBuf, path: &Path) -> Outcome<Level> {
        let mut names = Vec::new();
        let before = self.names_bytes;
        for entry in fs::read_dir(name_of(folder)).map_err(|error| about(error, path))? {
            let name = entry.map_err(|error| about(error, path))?.file_name();
            self.names_bytes += name.len() + ITEM_COST;
            if self.names_bytes > NAMES_BYTES_MAX {
                return Err(Fault::too_large(format!("{}: too many files in one folder", printable(path))));
            }
            names.push(name);
        }
        names.sort_unstable();
        Ok(Level { path: below, names: names.into_iter(), names_bytes: self.names_bytes - before })
    }

    fn folder(&mut self, folder: &Folder, mut name: Vec<u8>, path: &Path) -> Outcome<()> {
        let metadata = fs::metadata(name_of(folder)).map_err(|error| about(error, path))?;
        let attributes = attributes_of(folder, path)?;
        name.extend_from_slice(if name.is_empty() { b"./" } else { b"/" });
        self.put(&Entry { attributes, ..entry(Kind::Folder, name, &metadata) }, 0, None)
    }

    /// What is mounted is not part of the tree; a folder that it is mounted on is.
    fn mount_point(&mut self, here: &Folder, name: &OsStr, mut archived: Vec<u8>) -> Outcome<()> {
        match fs::symlink_metadata(name_of(here).join(name)) {
            Ok(metadata) if metadata.is_dir() => {
                archived.push(b'/');
                self.put(&entry(Kind::Folder, archived, &metadata), 0, None)
            }
            _ => Ok(()),
        }
    }

    /// Anything but a folder.
    fn node(&mut self, node: &File, metadata: &Metadata, name: Vec<u8>, path: &Path) -> Outcome<()> {
        let of = metadata.file_type();
        if of.is_symlink() {
            let target = read_link(node).map_err(|error| about(error, path))?;
            return self.put(&Entry { target, ..entry(Kind::Link, name, metadata) }, 0, None);
        }
        if of.is_fifo() {
            return self.put(&entry(Kind::Fifo, name, metadata), 0, None);
        }
        if of.is_char_device() || of.is_block_device() {
            let device = device_of(metadata.rdev(), of.is_block_device());
            return self.put(&entry(Kind::Device, name, metadata), 0, Some(device));
        }
        if !of.is_file() {
            return Ok(());
        }
        if let Some(first) = self.first_name(metadata, &name) {
            return self.put(&Entry { target: first, ..entry(Kind::HardLink, name, metadata) }, 0, None);
        }
        let flags = sys::O_NONBLOCK | sys::O_NOCTTY;
        let mut file = access::open(&name_of(node), flags).map_err(|error| about(error, path))?;
        let attributes = attributes_of(&file, path)?;
        let size = metadata.len();
        self.frames.expect(size, path)?;
        self.put(&Entry { attributes, ..entry(Kind::File, name, metadata) }, size, None)?;
        self.frames.copy(&mut file, size, path)?;
        self.frames.put(&vec![0; tar::padding(size)])
    }

    /// The name under which the same file was packed before.
    fn first_name(&mut self, metadata: &Metadata, name: &[u8]) -> Option<Vec<u8>> {
        if metadata.nlink() < 2 {
            return None;
        }
        let key = (metadata.dev(), metadata.ino());
        if let Some((first, left)) = self.links.get_mut(&key) {
            let first = first.clone();
            *left -= 1;
            if *left == 0 {
                self.links.remove(&key);
                self.links_bytes -= first.len() + ITEM_COST;
            }
            return Some(first);
        }
        if self.links_bytes < LINKS_BYTES_MAX {
            self.links_bytes += name.len() + ITEM_COST;
            self.links.insert(key, (name.to_vec(), metadata.nlink() - 1));
        }
        None
    }

    fn put(&mut self, entry: &Entry, size: u64, device: Option<Device>) -> Outcome<()> {
        let mut headers = Vec::new();
        tar::put_headers(entry, size, device, &mut headers);
        self.frames.put(&headers)
    }
}

fn entry(kind: Kind, path: Vec<u8>, metadata: &Metadata) -> Entry {
    Entry {
        kind,
        path,
        target: Vec::new(),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid().into(),
        gid: metadata.gid().into(),
        seconds: metadata.mtime(),
        attributes: Vec::new(),
        is_sparse: false,
    }
}

fn archived_name(top: &[u8], below: &Path) -> Vec<u8> {
    let below = below.as_os_str().as_bytes();
    if top.is_empty() {
        return below.to_vec();
    }
    [top, b"/", below].concat()
}

fn reopened(top: &Folder, path: &Path) -> io::Result<Folder> {
    let path = path.as_os_str();
    top.below(if path.is_empty() { OsStr::new(".") } else { path })
}

fn read_link(node: &File) -> io::Result<Vec<u8>> {
    let link = Folder::from(OwnedFd::from(node.try_clone()?));
    link.read_link(OsStr::new("")).map(OsString::into_vec)
}

/// `makedev` of the kernel's 64-bit form, the other way round.
fn device_of(number: u64, is_block: bool) -> Device {
    let major = (number >> 8 & 0xfff) | (number >> 32 & 0xffff_f000);
    let minor = (number & 0xff) | (number >> 12 & 0xffff_ff00);
    Device { is_block, major: major as u32, minor: minor as u32 }
}

/// Those that a tree may bring along. A file system without any has none.
fn attributes_of(file: &impl AsRawFd, path: &Path) -> Outcome<Vec<(Vec<u8>, Vec<u8>)>> {
    let names = attribute_names(file, ATTRIBUTE_MAX).unwrap_or_default();
    let mut attributes = Vec::new();
    let mut bytes = 0;
    for name in names {
        // A record of pax ends its name with `=`.
        if !is_attribute(&name) || name.contains(&b'=') {
            continue;
        }
        // The value of a capability that is valid in another user namespace alone cannot be read.
        if let Ok(value) = attribute(file, &name, ATTRIBUTE_MAX) {
            bytes += name.len() + value.len() + ITEM_COST;
            attributes.push((name, value));
        }
        if bytes > ATTRIBUTE_BYTES_MAX {
            return Err(Fault::too_large(format!("{}: has too many extended attributes", printable(path))));
        }
    }
    attributes.sort();
    Ok(attributes)
}

pub fn is_attribute(name: &[u8]) -> bool {
    name == b"security.capability" || name.starts_with(b"user.")
}
