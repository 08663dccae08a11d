//! The folder that a layer is unpacked into. Each path is walked name by name from its root: the kernel follows no link and crosses no
//! mount (openat2(2)), links are followed here, within the layer and those below it, and `..` never leads above the root.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::mem;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::tar::{refused, Entry, Kind};
use crate::remove::remove_entry;
use sys::entry::{change_file_mode, has_attribute, set_attribute, S_IFCHR, S_IFIFO};
use sys::folder::Folder;
use sys::Error;

/// Each sandbox has so many ids.
const ID_MAX: u64 = 65_535;
const NAME_BYTES_MAX: usize = 255;
const PATH_BYTES_MAX: usize = 4095;
const LINKS_MAX: usize = 40;
const COPY_BYTES: usize = 128 * 1024;
const WHITEOUT: &[u8] = b".wh.";
const WHITEOUT_OPAQUE: &[u8] = b".wh..wh..opq";
/// Of aufs; they say nothing about the layer.
const WHITEOUT_OTHER: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b"trusted.overlay.opaque";
const CAPABILITY: &[u8] = b"security.capability";
/// `struct vfs_cap_data` of revision 2 (capabilities(7)); revision 3 names a root user of some other namespace.
const CAPABILITY_BYTES: usize = 20;
const CAPABILITY_REVISION: u8 = 2;
/// In the root: a sandbox has its own, and what a layer has there nobody could see.
const RESERVED: [&[u8]; 4] = [b".atoll", b"dev", b"proc", b"sys"];
/// The same in `etc`: a link there could keep a sandbox from its own.
const RESERVED_IN_ETC: [&[u8]; 4] = [b"hostname", b"hosts", b"machine-id", b"resolv.conf"];
const ENOENT: i32 = 2;
const ENOTDIR: i32 = 20;

#[derive(Clone, Copy)]
pub struct Limits {
    /// Entries, and folders that they need.
    pub files: u64,
    /// Names in one path.
    pub depth: usize,
    /// Of the paths of all folders, which are kept until the end.
    pub folder_bytes: usize,
}

#[derive(Debug, Default)]
pub struct Report {
    pub files: u64,
    /// Left out.
    pub devices: u64,
    /// Left out: all but `user.*` and `security.capability`.
    pub attributes: u64,
    /// Nothing of the layers below is to be seen.
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
    /// Most entries lie beside the one before.
    last: Option<(Vec<OsString>, Rc<Place>)>,
    buffer: Vec<u8>,
}

/// A folder of the layer.
struct Place {
    /// From the root, without links.
    names: Vec<OsString>,
    folder: Rc<Folder>,
}

/// What the layers below show under one path.
enum Below {
    Nothing,
    Folder(Metadata),
    Link(OsString),
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
            // Another entry may have replaced it.
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
        let failed = |error: io::Error| refused(&entry.path, &format!("cannot be made: {error}"));
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
        let failed = |error: io::Error| refused(&entry.path, &format!("cannot be made: {error}"));
        let made = match self.seen(place, name, &entry.path)? {
            Some(found) if found.is_dir() => place.folder.folder(name).map_err(failed)?,
            Some(_) => {
                self.clear(place, name, &entry.path)?;
                let made = place.folder.make_folder(name).map_err(failed)?;
                // What is replaced has hidden a folder below, if there is one.
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
            return Err(refused(&entry.path, &format!("is a folder behind more than {most} bytes of their paths")));
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
        linked.map_err(|error| refused(&entry.path, &format!("cannot be linked: {error}")))
    }

    fn white_out(&mut self, place: &Rc<Place>, name: &OsStr, path: &[u8]) -> Result<(), Error> {
        let failed = |error: io::Error| refused(path, &format!("cannot be made: {error}"));
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
        // It hides what is below, not what this layer has, whichever comes first in the archive.
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

    /// The folder of a path: links on the way are followed, and missing folders made as the layers below have them. `None` where one
    /// is missing and not to be made.
    fn resolve(&mut self, names: &[OsString], path: &[u8], create: bool) -> Result<Option<Rc<Place>>, Error> {
        if let Some((last, place)) = &self.last {
            if last == names {
                return Ok(Some(place.clone()));
            }
        }
        let failed = |error: io::Error| refused(path, &format!("has a folder that cannot be entered: {error}"));
        let mut todo: VecDeque<OsString> = names.iter().cloned().collect();
        let mut above = vec![self.root.clone()];
        let mut found: Vec<OsString> = Vec::new();
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            if name.as_bytes() == b".." {
                if found.pop().is_some() {
                    above.pop();
                }
                continue;
            }
            if found.len() >= self.limits.depth {
                return Err(refused(path, "lies too deep"));
            }
            let here = above.last().cloned().unwrap_or_else(|| self.root.clone());
            let target = match metadata(&here, &name).map_err(failed)? {
                Some(entry) if entry.is_dir() => {
                    above.push(Rc::new(here.folder(&name).map_err(failed)?));
                    found.push(name);
                    continue;
                }
                Some(entry) if entry.file_type().is_symlink() => here.read_link(&name).map_err(failed)?,
                Some(entry) if !is_whiteout(&entry) => return Err(refused(path, "lies below what is no folder")),
                _ if !create => return Ok(None),
                hidden => match self.below(&found, &name) {
                    Below::Link(target) if hidden.is_none() => target,
                    below => {
                        above.push(Rc::new(self.imply(&here, &name, hidden.is_some(), &below, path)?));
                        found.push(name);
                        continue;
                    }
                },
            };
            links += 1;
            if links > LINKS_MAX {
                return Err(refused(path, "lies below too many links"));
            }
            if target.as_bytes().starts_with(b"/") {
                found.clear();
                above.truncate(1);
            }
            for name in split(target.as_bytes()).collect::<Vec<_>>().into_iter().rev() {
                todo.push_front(OsString::from_vec(name.to_vec()));
            }
            if todo.len() > PATH_BYTES_MAX {
                return Err(refused(path, "lies below links that are too long"));
            }
        }
        let folder = above.pop().unwrap_or_else(|| self.root.clone());
        let place = Rc::new(Place { names: found, folder });
        self.last = Some((names.to_vec(), place.clone()));
        Ok(Some(place))
    }

    /// Makes a folder that the layer has entries in, but no entry of.
    fn imply(
        &mut self,
        here: &Folder,
        name: &OsStr,
        is_hidden: bool,
        below: &Below,
        path: &[u8],
    ) -> Result<Folder, Error> {
        let failed = |error: io::Error| refused(path, &format!("has a folder that cannot be made: {error}"));
        self.count(path)?;
        if is_hidden {
            here.unlink(name).map_err(failed)?;
        }
        let made = here.make_folder(name).map_err(failed)?;
        if is_hidden {
            self.hide_below(&made).map_err(failed)?;
        }
        match below {
            Below::Folder(like) if !is_hidden => {
                here.give(name, like.uid(), like.gid()).map_err(failed)?;
                change_file_mode(&made, like.mode() & 0o7777).map_err(failed)?;
            }
            _ => change_file_mode(&made, 0o755).map_err(failed)?,
        }
        Ok(made)
    }

    /// What overlay would show of the layers below. A file, a whiteout and an opaque folder hide all that is deeper.
    fn below(&self, parents: &[OsString], name: &OsStr) -> Below {
        let mut visible = self.lowers.len();
        let mut path = PathBuf::new();
        for name in parents {
            path.push(name);
            for (index, lower) in self.lowers[..visible].iter().enumerate() {
                match lower.look(path.as_os_str()).and_then(|file| file.metadata()) {
                    Ok(found) if !found.is_dir() => visible = index,
                    Ok(_) if is_opaque(lower, &path) => visible = index + 1,
                    _ => continue,
                }
                break;
            }
        }
        path.push(name);
        for lower in &self.lowers[..visible] {
            let found = match lower.look(path.as_os_str()).and_then(|file| file.metadata()) {
                Ok(found) => found,
                Err(_) => continue,
            };
            if found.is_dir() {
                return Below::Folder(found);
            }
            if !found.file_type().is_symlink() {
                return Below::Nothing;
            }
            let target = path.parent().and_then(|parent| match parent.as_os_str().is_empty() {
                true => lower.read_link(name).ok(),
                false => lower.folder(parent.as_os_str()).and_then(|folder| folder.read_link(name)).ok(),
            });
            return target.map_or(Below::Nothing, Below::Link);
        }
        Below::Nothing
    }

    /// Removes what an earlier entry has made here.
    fn clear(&mut self, place: &Place, name: &OsStr, path: &[u8]) -> Result<(), Error> {
        if self.seen(place, name, path)?.is_none() {
            return Ok(());
        }
        // A folder in it may be the last one.
        self.last = None;
        remove_entry(&place.folder, name, Path::new(OsStr::from_bytes(path)), 0)
    }

    fn seen(&self, place: &Place, name: &OsStr, path: &[u8]) -> Result<Option<Metadata>, Error> {
        metadata(&place.folder, name).map_err(|error| refused(path, &format!("cannot be looked at: {error}")))
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
                refused(&entry.path, &format!("has an attribute {name} that cannot be set: {error}"))
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
            true => Err(refused(path, &format!("is one more than {} files", self.limits.files))),
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

fn is_opaque(lower: &Folder, path: &Path) -> bool {
    lower.folder(path.as_os_str()).map_or(false, |folder| has_attribute(&folder, OPAQUE, b"y"))
}

fn is_capability(name: &[u8], value: &[u8]) -> bool {
    name == CAPABILITY && value.len() == CAPABILITY_BYTES && value[3] == CAPABILITY_REVISION
}

fn split(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."))
}

/// The names of a path of the archive, from the root of the image.
fn names_of(path: &[u8]) -> Result<Vec<OsString>, Error> {
    if path.len() > PATH_BYTES_MAX {
        return Err(refused(&path[..NAME_BYTES_MAX], "… is too long a path"));
    }
    split(path)
        .map(|name| match name {
            b".." => Err(refused(path, "leads out of the layer")),
            _ if name.contains(&0) => Err(refused(path, "holds a NUL")),
            _ if name.len() > NAME_BYTES_MAX => Err(refused(path, "has too long a name")),
            _ => Ok(OsString::from_vec(name.to_vec())),
        })
        .collect()
}
