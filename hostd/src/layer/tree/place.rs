//! Where an entry goes: paths of an archive, walked through the layer and those below it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{is_whiteout, metadata, Tree, OPAQUE};
use sys::entry::{change_file_mode, has_attribute};
use sys::folder::Folder;
use sys::Error;
use tar::{refused, unmade};

const NAME_BYTES_MAX: usize = 255;
const PATH_BYTES_MAX: usize = 4095;
const LINKS_MAX: usize = 40;

/// A folder of the layer.
pub struct Place {
    /// From the root, without links.
    pub names: Vec<OsString>,
    pub folder: Rc<Folder>,
}

/// What the layers below show under one path.
enum Below {
    Nothing,
    Folder(Metadata),
    Link(OsString),
}

impl Tree {
    /// The folder of a path: links on the way are followed, and missing folders made as the layers below have them. `None` where one
    /// is missing and not to be made.
    pub(super) fn resolve(
        &mut self,
        names: &[OsString],
        path: &[u8],
        create: bool,
    ) -> Result<Option<Rc<Place>>, Error> {
        if let Some((last, place)) = &self.last {
            if last == names {
                return Ok(Some(place.clone()));
            }
        }
        let failed = |error: io::Error| unmade(path, "has a folder that cannot be entered", error);
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

    /// Makes a folder that has entries in the layer, but no entry of its own.
    fn imply(
        &mut self,
        here: &Folder,
        name: &OsStr,
        is_hidden: bool,
        below: &Below,
        path: &[u8],
    ) -> Result<Folder, Error> {
        let failed = |error: io::Error| unmade(path, "has a folder that cannot be made", error);
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
}

fn is_opaque(lower: &Folder, path: &Path) -> bool {
    lower.folder(path.as_os_str()).map_or(false, |folder| has_attribute(&folder, OPAQUE, b"y"))
}

fn split(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."))
}

/// The names of a path of the archive, from the root of the image.
pub fn names_of(path: &[u8]) -> Result<Vec<OsString>, Error> {
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
