//! Unpacks a tar into a folder, and merges it into what is there: as `COPY` of a Dockerfile does, or as `ADD` does with an archive (Dockerfile
//! reference; BuildKit, moby/pkg/archive). Each entry is reached from the folder by descriptor (`sys::folder`), so that no link leads out of it.

mod content;
mod request;

use crate::files::access::name_of;
use crate::files::archive_frames::Incoming;
use crate::files::protected::ProtectedDirectory;
use crate::files::remove::remove;
use crate::files::{about, make_folders};
use crate::protocol::bytes::printable;
use crate::protocol::fault::{Fault, Outcome};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use sys::entry::{change_file_mode, S_IFIFO};
use sys::folder::Folder;
use tar::{Content, Entry, Kind, Tar};

pub use request::{Report, Unpacking};

/// The highest id of a sandbox.
const ID_MAX: u64 = 65_535;
const PATH_BYTES_MAX: usize = 4095;
/// Of folders that no entry describes.
const MADE_FOLDER_MODE: u32 = 0o755;
const COPY_BYTES: usize = 128 * 1024;
/// Zeros of this length at least become a hole.
const HOLE_BYTES: usize = 4096;

/// Reads the archive from frames of the client.
pub fn unpack(unpacking: &Unpacking, protected: &ProtectedDirectory, reader: &mut impl Read) -> Outcome<Report> {
    let mut tree = Tree::open(unpacking, protected)?;
    let mut tar = Tar::new(Incoming::new(reader));
    while let Some(entry) = tar.next_entry().map_err(damaged)? {
        tree.add(&entry, &mut tar.content())?;
    }
    tree.date_folders(&[]);
    // Some archives have more behind their end.
    io::copy(&mut tar.into_input(), &mut io::sink()).map_err(|error| Fault::invalid(error.to_string()))?;
    Ok(tree.report)
}

fn damaged(error: sys::Error) -> Fault {
    let message = format!("the archive: {}", error);
    match error.code {
        sys::Code::TooLarge => Fault::too_large(message),
        _ => Fault::invalid(message),
    }
}

struct Tree<'a> {
    unpacking: &'a Unpacking,
    top: Folder,
    /// The target was missing.
    is_new: bool,
    /// The folder of the guest, below the target.
    protected: Option<Vec<OsString>>,
    report: Report,
    /// The folder of the last entry: most entries lie beside the one before. `None` for one that something is mounted over.
    last: Option<(Vec<OsString>, Option<Rc<Folder>>)>,
    /// The last entry's folders by their depth. A folder gets its time when what it holds is there.
    dated: Vec<(Vec<OsString>, i64)>,
    buffer: Vec<u8>,
}

impl<'a> Tree<'a> {
    fn open(unpacking: &'a Unpacking, protected: &ProtectedDirectory) -> Outcome<Tree<'a>> {
        let target = &unpacking.target;
        let is_new = fs::symlink_metadata(target).is_err();
        make_folders(target, unpacking.owner)?;
        let own = protected.below(target).map(|path| path.iter().map(OsStr::to_os_string).collect());
        Ok(Tree {
            unpacking,
            top: Folder::open(target).map_err(|error| about(error, target))?,
            is_new,
            protected: own,
            report: Report::default(),
            last: None,
            dated: Vec::new(),
            buffer: vec![0; COPY_BYTES],
        })
    }

    fn add(&mut self, entry: &Entry, content: &mut Content<impl Read>) -> Outcome<()> {
        self.report.files += 1;
        let mut names = self.names_of(&entry.path)?;
        self.date_folders(&names);
        if self.owner_of(entry).is_none() {
            let why = format!("belongs to {}:{}, and a sandbox has the ids up to {}", entry.uid, entry.gid, ID_MAX);
            return Err(self.refused(&names, &why));
        }
        let name = match names.pop() {
            Some(name) => name,
            None => return self.describe_top(entry),
        };
        let folder = if self.is_protected(&names, &name) { None } else { self.folder_of(&names)? };
        let made = match &folder {
            Some(folder) => self.make(entry, content, folder, &names, &name)?,
            None => false,
        };
        if !made {
            self.report.hidden += 1;
        }
        Ok(())
    }

    fn is_protected(&self, names: &[OsString], name: &OsStr) -> bool {
        let whole = || names.iter().map(OsString::as_os_str).chain([name]);
        let is_inside =
            |own: &Vec<OsString>| whole().count() >= own.len() && whole().zip(own).all(|(one, other)| one == other);
        self.protected.as_ref().map_or(false, is_inside)
    }

    /// False where something is mounted on the place.
    fn make(
        &mut self,
        entry: &Entry,
        content: &mut Content<impl Read>,
        folder: &Rc<Folder>,
        names: &[OsString],
        name: &OsStr,
    ) -> Outcome<bool> {
        let path = self.path_of(names, name);
        let failed = |error: io::Error| about(error, &path);
        let (uid, gid) = self.owner_of(entry).unwrap_or((0, 0));
        match entry.kind {
            Kind::Folder => return self.make_folder(entry, folder, names, name),
            Kind::Device => {
                self.report.devices += 1;
                return Ok(true);
            }
            Kind::HardLink => {
                let target = self.names_of(&entry.target)?;
                return match target.split_last() {
                    Some((source, parents)) if (parents, source.as_os_str()) != (names, name) => {
                        let from = self.folder_of(parents)?;
                        let from = from.ok_or_else(|| self.refused(&target, "is not part of the tree"))?;
                        let result =
                            self.place(folder, name, &path, |folder| folder.make_hard_link(name, &from, source));
                        result.map(|made| made.is_some()).map_err(|fault| match fault.code {
                            "not_found" => Fault::invalid(format!(
                                "{}: is a hard link to {}, which is not there",
                                printable(&path),
                                printable(OsStr::from_bytes(&entry.target))
                            )),
                            _ => fault,
                        })
                    }
                    Some(_) => Ok(true),
                    None => Err(Fault::invalid(format!("{}: is a hard link to a folder", printable(&path)))),
                };
            }
            Kind::File => {
                let mut file = match self.place(folder, name, &path, |folder| folder.create(name))? {
                    Some(file) => file,
                    None => return Ok(false),
                };
                self.copy(content, &mut file, &path)?;
                sys::fchown(&file, uid, gid).map_err(failed)?;
                change_file_mode(&file, self.mode_of(entry)).map_err(failed)?;
                self.set_attributes(entry, &file, &path)?;
            }
            Kind::Link => {
                let target = OsStr::from_bytes(&entry.target);
                if self.place(folder, name, &path, |folder| folder.make_link(name, target))?.is_none() {
                    return Ok(false);
                }
                folder.give(name, uid, gid).map_err(failed)?;
            }
            Kind::Fifo => {
                if self.place(folder, name, &path, |folder| folder.make_node(name, S_IFIFO))?.is_none() {
                    return Ok(false);
                }
                folder.give(name, uid, gid).map_err(failed)?;
                folder.change_mode(name, self.mode_of(entry)).map_err(failed)?;
            }
        }
        folder.date(name, entry.seconds, 0).map_err(failed)?;
        Ok(true)
    }

    fn make_folder(&mut self, entry: &Entry, folder: &Rc<Folder>, names: &[OsString], name: &OsStr) -> Outcome<bool> {
        let path = self.path_of(names, name);
        let failed = |error: io::Error| about(error, &path);
        let mut made = folder.make_folder(name);
        if matches!(&made, Err(error) if error.kind() == ErrorKind::AlreadyExists) {
            made = folder.below(name);
            if matches!(&made, Err(error) if matches!(error.raw_os_error(), Some(sys::ENOTDIR | sys::ELOOP))) {
                if !self.unpacking.as_archive {
                    let message = format!("{}: is no folder, and a folder would take its place", printable(&path));
                    return Err(Fault::conflict(message));
                }
                folder.unlink(name).map_err(failed)?;
                made = folder.make_folder(name);
            }
        }
        let made = match made {
            Err(error) if error.raw_os_error() == Some(sys::EXDEV) => return Ok(false),
            made => made.map_err(failed)?,
        };
        let (uid, gid) = self.owner_of(entry).unwrap_or((0, 0));
        sys::fchown(&made, uid, gid).map_err(failed)?;
        change_file_mode(&made, self.mode_of(entry)).map_err(failed)?;
        self.set_attributes(entry, &made, &path)?;
        self.dated.push((names.iter().cloned().chain([name.to_os_string()]).collect(), entry.seconds));
        Ok(true)
    }

    /// The target is no part of what is copied. One that is new has the mode that was asked for.
    fn describe_top(&mut self, entry: &Entry) -> Outcome<()> {
        if entry.kind != Kind::Folder {
            return Err(Fault::invalid("the archive: an entry has no name"));
        }
        if let Some(mode) = self.unpacking.mode.as_ref().filter(|_| self.is_new && !self.unpacking.as_archive) {
            let changed = change_file_mode(&self.top, mode.apply(MADE_FOLDER_MODE, true));
            changed.map_err(|error| about(error, &self.unpacking.target))?;
        }
        Ok(())
    }

    /// Makes something in the place of a file or a link. `None` where something is mounted.
    fn place<Made>(
        &mut self,
        folder: &Folder,
        name: &OsStr,
        path: &Path,
        make: impl Fn(&Folder) -> io::Result<Made>,
    ) -> Outcome<Option<Made>> {
        match make(folder) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) if error.raw_os_error() == Some(sys::EXDEV) => return Ok(None),
            made => return made.map(Some).map_err(|error| about(error, path)),
        }
        match folder.look(name).and_then(|node| node.metadata()) {
            Ok(found) if found.is_dir() && !self.unpacking.as_archive => {
                return Err(Fault::conflict(format!(
                    "{}: is a folder, and a file would take its place",
                    printable(path)
                )))
            }
            Ok(found) if found.is_dir() => {
                // It may be what is remembered, or hold it.
                self.last = None;
                remove(&name_of(folder).join(name))?;
            }
            Err(error) if error.raw_os_error() == Some(sys::EXDEV) => return Ok(None),
            _ => match folder.unlink(name) {
                Err(error) if error.raw_os_error() == Some(sys::EBUSY) => return Ok(None),
                result => result.map_err(|error| about(error, path))?,
            },
        }
        make(folder).map(Some).map_err(|error| about(error, path))
    }

    /// The folder of these names; missing ones are made. `None` where one is on another mount.
    fn folder_of(&mut self, names: &[OsString]) -> Outcome<Option<Rc<Folder>>> {
        if let Some((last, folder)) = &self.last {
            if last == names {
                return Ok(folder.clone());
            }
        }
        let folder = match self.open_folder(names) {
            Err(error) if error.raw_os_error() == Some(sys::ENOENT) => self.make_parents(names)?,
            result => self.entered(result, names)?,
        };
        let folder = folder.map(Rc::new);
        self.last = Some((names.to_vec(), folder.clone()));
        Ok(folder)
    }

    fn make_parents(&mut self, names: &[OsString]) -> Outcome<Option<Folder>> {
        let mut here = self.open_folder(&[]).map_err(|error| about(error, &self.unpacking.target))?;
        for count in 1..=names.len() {
            let opened = match self.open_folder(&names[..count]) {
                Err(error) if error.raw_os_error() == Some(sys::ENOENT) => {
                    let path = self.path_of(&names[..count - 1], &names[count - 1]);
                    let made = here.make_folder(&names[count - 1]).map_err(|error| about(error, &path))?;
                    change_file_mode(&made, MADE_FOLDER_MODE).map_err(|error| about(error, &path))?;
                    if let Some((uid, gid)) = self.unpacking.owner {
                        sys::fchown(&made, uid, gid).map_err(|error| about(error, &path))?;
                    }
                    made
                }
                result => match self.entered(result, &names[..count])? {
                    Some(folder) => folder,
                    None => return Ok(None),
                },
            };
            here = opened;
        }
        Ok(Some(here))
    }

    fn open_folder(&self, names: &[OsString]) -> io::Result<Folder> {
        let path: PathBuf = names.iter().collect();
        let path = if names.is_empty() { OsStr::new(".") } else { path.as_os_str() };
        match self.unpacking.as_archive {
            true => self.top.below_as_root(path),
            false => self.top.below(path),
        }
    }

    fn entered(&self, result: io::Result<Folder>, names: &[OsString]) -> Outcome<Option<Folder>> {
        match result {
            Ok(folder) => Ok(Some(folder)),
            Err(error) => match error.raw_os_error() {
                Some(sys::EXDEV) => Ok(None),
                Some(sys::ENOTDIR | sys::ELOOP) => {
                    let message = format!("{}: a part of the path is no folder", printable(self.joined(names)));
                    Err(Fault::conflict(message))
                }
                _ => Err(about(error, &self.joined(names))),
            },
        }
    }

    /// Sets the times of the folders that the next entry does not lie in.
    fn date_folders(&mut self, next: &[OsString]) {
        while let Some((names, seconds)) = self.dated.last() {
            if next.len() > names.len() && next.starts_with(names) {
                return;
            }
            // A later entry may have taken the place of the folder, which then needs no time.
            let _ = self.open_folder(names).and_then(|folder| folder.date(OsStr::new("."), *seconds, 0));
            self.dated.pop();
        }
    }

    fn owner_of(&self, entry: &Entry) -> Option<(u32, u32)> {
        let own = Some((entry.uid as u32, entry.gid as u32)).filter(|_| entry.uid <= ID_MAX && entry.gid <= ID_MAX);
        self.unpacking.owner.or(own)
    }

    fn mode_of(&self, entry: &Entry) -> u32 {
        self.unpacking.mode.as_ref().map_or(entry.mode, |mode| mode.apply(entry.mode, entry.kind == Kind::Folder))
    }

    /// The names of a path of the archive, from the target on.
    fn names_of(&self, path: &[u8]) -> Outcome<Vec<OsString>> {
        let wrong = |why: &str| {
            let shown = &path[..path.len().min(PATH_BYTES_MAX)];
            Fault::invalid(format!("{}: {}", printable(OsStr::from_bytes(shown)), why))
        };
        if path.len() > PATH_BYTES_MAX || path.contains(&0) {
            return Err(wrong("is too long or holds a NUL"));
        }
        let mut names = Vec::new();
        for name in path.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." if self.unpacking.as_archive && names.pop().is_some() => {}
                b".." => return Err(wrong("leads out of the archive")),
                _ => names.push(OsString::from_vec(name.to_vec())),
            }
        }
        Ok(names)
    }

    fn joined(&self, names: &[OsString]) -> PathBuf {
        self.unpacking.target.iter().chain(names.iter().map(OsString::as_os_str)).collect()
    }

    fn path_of(&self, names: &[OsString], name: &OsStr) -> PathBuf {
        self.joined(names).join(name)
    }

    fn refused(&self, names: &[OsString], why: &str) -> Fault {
        Fault::invalid(format!("{}: {}", printable(self.joined(names)), why))
    }
}
