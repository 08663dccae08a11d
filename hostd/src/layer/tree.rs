//! The folder that a layer is unpacked into. Each path is walked name by name from the root. The kernel follows no link and crosses no
//! mount (openat2(2)). Links are followed here, within the layer and those below it, and `..` never leads above the root.

mod place;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use self::place::{names_of, Place};
use crate::remove::remove_entry;
use sys::entry::{change_file_mode, set_attribute, S_IFCHR, S_IFIFO};
use sys::folder::Folder;
use sys::Error;
use tar::{refused, too_many, unmade, Entry, Kind};

/// The highest id of a sandbox.
const ID_MAX: u64 = 65_535;
const COPY_BYTES: usize = 128 * 1024;
const WHITEOUT: &[u8] = b".wh.";
const WHITEOUT_OPAQUE: &[u8] = b".wh..wh..opq";
/// Prefix of other files of aufs, which say nothing about the layer.
const WHITEOUT_OTHER: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b"trusted.overlay.opaque";
const CAPABILITY: &[u8] = b"security.capability";
/// `struct vfs_cap_data` of revision 2 (capabilities(7)); revision 3 names a root user of some other namespace.
const CAPABILITY_BYTES: usize = 20;
const CAPABILITY_REVISION: u8 = 2;
/// Names in the root of which each sandbox has its own: nobody could see those of a layer.
const RESERVED: [&[u8]; 4] = [b".atoll", b"dev", b"proc", b"sys"];
/// The same in `etc`: a link in a layer could keep a sandbox from its own file.
const RESERVED_IN_ETC: [&[u8]; 4] = [b"hostname", b"hosts", b"machine-id", b"resolv.conf"];
const ENOENT: i32 = 2;
const ENOTDIR: i32 = 20;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries, and folders that they need.
    pub files: u64,
    /// Names in one path.
    pub depth: usize,
    /// Bytes of the paths of all folders, which are kept until the end.
    pub folder_bytes: usize,
}

#[derive(Debug, Default)]
pub struct Report {
    pub files: u64,
    /// Left out.
    pub devices: u64,
    /// Left out: all but `user.*` and `security.capability`.
    pub attributes: u64,
    /// The layer hides all of the layers below.
    pub is_opaque: bool,
}

pub struct Tree {
    root: Rc<Folder>,
    /// Unpacked layers below, newest first.
    lowers: Vec<Folder>,
    plain: bool,
    limits: Limits,
    report: Report,
    /// Folders by their paths. Their times are set at the end: each new entry changes them.
    dated: Vec<(PathBuf, i64)>,
    dated_bytes: usize,
    /// The folder of the last entry: most entries lie beside the one before.
    last: Option<(Vec<OsString>, Rc<Place>)>,
    buffer: Vec<u8>,
}

impl Tree {
    pub fn open(root: &Path, lowers: &[PathBuf], plain: bool, limits: Limits) -> Result<Tree, Error> {
        let open = |path: &Path| Folder::open(path).map_err(|error| Error::io("open", path.display(), error));
        Ok(Tree {
            root: Rc::new(open(root)?),
            lowers: lowers.iter().map(|path| open(path)).collect::<Result<_, _>>()?,
            plain,
            limits,
            report: Report::default(),
            dated: Vec::new(),
            dated_bytes: 0,
            last: None,
            buffer: vec![0; COPY_BYTES],
        })
    }

    /// Makes what an entry describes, in the place of what an earlier one has made there.
    pub fn add(&mut self, entry: &Entry, content: &mut impl Read) -> Result<(), Error> {
        self.count(&entry.path)?;
        if entry.is_sparse {
            return Err(refused(&entry.path, "is a sparse file, which layers do not have"));
        }
        let mut names = names_of(&entry.path)?;
        let name = match names.pop() {
            Some(name) => name,
            // The root of a sandbox belongs to its own layer.
            None => return Ok(()),
        };
        if self.is_reserved(&names, &name) {
            return Ok(());
        }
        let place = match self.resolve(&names, &entry.path, true)? {
            Some(place) if !self.is_reserved(&place.names, &name) => place,
            _ => return Ok(()),
        };
        if place.names.len() >= self.limits.depth {
            return Err(refused(&entry.path, "lies too deep"));
        }
        if !self.plain && name.as_bytes().starts_with(WHITEOUT) {
            return self.white_out(&place, &name, &entry.path);
        }
        self.make(entry, content, &place, &name)
    }

    /// To be called after the last entry.
    pub fn finish(mut self) -> Result<Report, Error> {
        if !self.plain && self.resolve(&[OsString::from("etc")], b"etc", false).is_err() {
            return Err(refused(b"etc", "is no folder, and files of every sandbox lie there"));
        }
        for (path, seconds) in self.dated.iter().rev() {
            let name = path.file_name().unwrap_or_default();
            let dated = match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                None => date_folder(&self.root, name, *seconds),
                Some(parent) => {
                    self.root.folder(parent.as_os_str()).and_then(|parent| date_folder(&parent, name, *seconds))
                }
            };
            // Another entry may have replaced the folder.
            drop(dated);
        }
        Ok(self.report)
    }

    fn make(&mut self, entry: &Entry, content: &mut impl Read, place: &Rc<Place>, name: &OsStr) -> Result<(), Error> {
        if !self.plain && (entry.uid > ID_MAX || entry.gid > ID_MAX) {
            let why = format!("belongs to {}:{}, and a sandbox has the ids up to {ID_MAX}", entry.uid, entry.gid);
            return Err(refused(&entry.path, &why));
        }
        let folder = &place.folder;
        let failed = |error: io::Error| unmade(&entry.path, "cannot be made", error);
        match entry.kind {
            Kind::Folder => return self.make_folder(entry, place, name),
            Kind::HardLink => return self.make_hard_link(entry, place, name),
            Kind::Fifo if self.plain => return Ok(()),
            Kind::Device => {
                self.report.devices += 1;
                return Ok(());
            }
            Kind::File => {
                self.clear(place, name, &entry.path)?;
                let mut file = folder.create(name).map_err(failed)?;
                self.copy(content, &mut file).map_err(failed)?;
                if !self.plain {
                    folder.give(name, entry.uid as u32, entry.gid as u32).map_err(failed)?;
                    change_file_mode(&file, entry.mode).map_err(failed)?;
                    self.set_attributes(entry, &file)?;
                }
            }
            Kind::Link => {
                self.clear(place, name, &entry.path)?;
                folder.make_link(name, OsStr::from_bytes(&entry.target)).map_err(failed)?;
                if !self.plain {
                    folder.give(name, entry.uid as u32, entry.gid as u32).map_err(failed)?;
                }
            }
            Kind::Fifo => {
                self.clear(place, name, &entry.path)?;
                folder.make_node(name, S_IFIFO).map_err(failed)?;
                folder.give(name, entry.uid as u32, entry.gid as u32).map_err(failed)?;
                folder.change_mode(name, entry.mode).map_err(failed)?;
            }
        }
        folder.date(name, entry.seconds, 0).map_err(failed)
    }

    fn make_folder(&mut self, entry: &Entry, place: &Rc<Place>, name: &OsStr) -> Result<(), Error> {
        let failed = |error: io::Error| unmade(&entry.path, "cannot be made", error);
        let made = match self.seen(place, name, &entry.path)? {
            Some(found) if found.is_dir() => place.folder.folder(name).map_err(failed)?,
            Some(_) => {
                self.clear(place, name, &entry.path)?;
                let made = place.folder.make_folder(name).map_err(failed)?;
                // The replaced entry hid any folder below, so the new folder does too.
                self.hide_below(&made).map_err(failed)?;
                made
            }
            None => place.folder.make_folder(name).map_err(failed)?,
        };
        if self.plain {
            return Ok(());
        }
        place.folder.give(name, entry.uid as u32, entry.gid as u32).map_err(failed)?;
        change_file_mode(&made, entry.mode).map_err(failed)?;
        self.set_attributes(entry, &made)?;
        let path: PathBuf = place.names.iter().map(OsString::as_os_str).chain([name]).collect();
        self.dated_bytes += path.as_os_str().len() + mem::size_of::<(PathBuf, i64)>();
        let most = self.limits.folder_bytes;
        if self.dated_bytes > most {
            return Err(too_many(&entry.path, &format!("is a folder behind more than {most} bytes of their paths")));
        }
        self.dated.push((path, entry.seconds));
        Ok(())
    }

    fn make_hard_link(&mut self, entry: &Entry, place: &Rc<Place>, name: &OsStr) -> Result<(), Error> {
        let unknown = || {
            let target = String::from_utf8_lossy(&entry.target);
            refused(&entry.path, &format!("is a hard link to {target}, which is no file of the same layer"))
        };
        let mut names = names_of(&entry.target)?;
        let source = names.pop().ok_or_else(unknown)?;
        let from = self.resolve(&names, &entry.path, false)?.ok_or_else(unknown)?;
        match self.seen(&from, &source, &entry.path)? {
            Some(found) if !found.is_dir() && !is_whiteout(&found) => {}
            _ => return Err(unknown()),
        }
        if from.names == place.names && source == name {
            return Ok(());
        }
        self.clear(place, name, &entry.path)?;
        let linked = place.folder.make_hard_link(name, &from.folder, &source);
        linked.map_err(|error| unmade(&entry.path, "cannot be linked", error))
    }

    fn white_out(&mut self, place: &Rc<Place>, name: &OsStr, path: &[u8]) -> Result<(), Error> {
        let failed = |error: io::Error| unmade(path, "cannot be made", error);
        if name.as_bytes() == WHITEOUT_OPAQUE {
            self.report.is_opaque |= place.names.is_empty();
            return self.hide_below(&place.folder).map_err(failed);
        }
        if name.as_bytes().starts_with(WHITEOUT_OTHER) {
            return Ok(());
        }
        let hidden = OsStr::from_bytes(&name.as_bytes()[WHITEOUT.len()..]);
        if matches!(hidden.as_bytes(), b"" | b"." | b"..") {
            return Err(refused(path, "hides nothing"));
        }
        if self.is_reserved(&place.names, hidden) {
            return Ok(());
        }
        // A whiteout hides entries of the layers below, not of this layer, whichever comes first in the archive.
        match self.seen(place, hidden, path)? {
            Some(found) if found.is_dir() => {
                let folder = place.folder.folder(hidden).map_err(failed)?;
                self.hide_below(&folder).map_err(failed)
            }
            Some(_) => Ok(()),
            None => {
                place.folder.make_node(hidden, S_IFCHR).map_err(failed)?;
                place.folder.change_mode(hidden, 0).map_err(failed)
            }
        }
    }

    /// Removes what an earlier entry has made here.
    fn clear(&mut self, place: &Place, name: &OsStr, path: &[u8]) -> Result<(), Error> {
        if self.seen(place, name, path)?.is_none() {
            return Ok(());
        }
        // `last` may be a folder in what is removed.
        self.last = None;
        remove_entry(&place.folder, name, Path::new(OsStr::from_bytes(path)), 0)
    }

    fn seen(&self, place: &Place, name: &OsStr, path: &[u8]) -> Result<Option<Metadata>, Error> {
        metadata(&place.folder, name).map_err(|error| unmade(path, "cannot be looked at", error))
    }

    fn hide_below(&self, folder: &Folder) -> io::Result<()> {
        if self.plain {
            return Ok(());
        }
        set_attribute(folder, OPAQUE, b"y")
    }

    fn set_attributes<F: std::os::unix::io::AsRawFd>(&mut self, entry: &Entry, file: &F) -> Result<(), Error> {
        for (name, value) in &entry.attributes {
            let is_kept = name.starts_with(b"user.") || (entry.kind == Kind::File && is_capability(name, value));
            if !is_kept {
                self.report.attributes += 1;
                continue;
            }
            set_attribute(file, name, value).map_err(|error| {
                let name = String::from_utf8_lossy(name);
                unmade(&entry.path, &format!("has an attribute {name} that cannot be set"), error)
            })?;
        }
        Ok(())
    }

    fn copy(&mut self, content: &mut impl Read, file: &mut File) -> io::Result<()> {
        loop {
            match content.read(&mut self.buffer)? {
                0 => return Ok(()),
                count => file.write_all(&self.buffer[..count])?,
            }
        }
    }

    fn count(&mut self, path: &[u8]) -> Result<(), Error> {
        self.report.files += 1;
        match self.report.files > self.limits.files {
            true => Err(too_many(path, &format!("is one more than {} files", self.limits.files))),
            false => Ok(()),
        }
    }

    fn is_reserved(&self, parents: &[OsString], name: &OsStr) -> bool {
        let first = parents.first().map_or(name, OsString::as_os_str);
        let is_in_etc = matches!(parents, [parent] if parent.as_bytes() == b"etc");
        let is_file = is_in_etc && RESERVED_IN_ETC.contains(&name.as_bytes());
        !self.plain && (is_file || RESERVED.contains(&first.as_bytes()))
    }
}

fn metadata(folder: &Folder, name: &OsStr) -> io::Result<Option<Metadata>> {
    match folder.look(name).and_then(|file| file.metadata()) {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.raw_os_error(), Some(ENOENT | ENOTDIR)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn date_folder(parent: &Folder, name: &OsStr, seconds: i64) -> io::Result<()> {
    parent.folder(name)?;
    parent.date(name, seconds, 0)
}

fn is_whiteout(found: &Metadata) -> bool {
    found.file_type().is_char_device() && found.rdev() == 0
}

fn is_capability(name: &[u8], value: &[u8]) -> bool {
    name == CAPABILITY && value.len() == CAPABILITY_BYTES && value[3] == CAPABILITY_REVISION
}
