//! What a client wants unpacked where, and what it is told of it.

use crate::files::mode::Mode;
use crate::files::LINKS_MAX;
use crate::protocol::bytes::printable;
use crate::protocol::fault::{Fault, Outcome};
use crate::protocol::request::{Request, INTEGER_MAX};
use crate::users;
use json::{object, Value};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

const NAMES_MAX: usize = 4096;

pub struct Unpacking {
    /// Without links.
    pub target: PathBuf,
    /// Of all that is made, whatever the archive says.
    pub owner: Option<(u32, u32)>,
    pub mode: Option<Mode>,
    pub as_archive: bool,
    pub bytes_max: Option<u64>,
}

#[derive(Default)]
pub struct Report {
    pub files: u64,
    pub bytes: u64,
    /// Left out.
    pub devices: u64,
    pub attributes: u64,
    /// Entries where something of the sandbox's own is mounted, which would hide them.
    pub hidden: u64,
}

impl Unpacking {
    pub fn of(request: &Request) -> Outcome<Unpacking> {
        let mode = request.optional_text("mode")?;
        let wrong = |text| Fault::invalid(format!("mode: '{}' is no mode of chmod", text));
        Ok(Unpacking {
            target: resolve_target(&request.path()?)?,
            owner: request.optional_text("owner")?.map(users::owner).transpose()?,
            mode: mode.map(|text| Mode::parse(text).ok_or_else(|| wrong(text))).transpose()?,
            as_archive: request.flag("asArchive")?,
            bytes_max: request.optional_integer("bytesMax", 0, INTEGER_MAX)?,
        })
    }
}

impl Report {
    pub fn value(&self) -> Value {
        object([
            ("ok", true.into()),
            ("files", self.files.into()),
            ("bytes", self.bytes.min(INTEGER_MAX).into()),
            ("devices", self.devices.into()),
            ("attributes", self.attributes.into()),
            ("hidden", self.hidden.into()),
        ])
    }
}

/// The path without links, those of missing parts and at the end too.
fn resolve_target(path: &Path) -> Outcome<PathBuf> {
    let names = |path: &Path| path.components().map(|part| part.as_os_str().to_os_string()).collect::<Vec<_>>();
    let mut todo: VecDeque<OsString> = names(path).into();
    let mut found = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = todo.pop_front() {
        match Path::new(&name).components().next() {
            Some(Component::RootDir) => found = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(found.pop()),
            Some(Component::Normal(_)) => match fs::read_link(found.join(&name)) {
                Ok(target) => {
                    links += 1;
                    if links > LINKS_MAX || todo.len() > NAMES_MAX {
                        return Err(Fault::invalid(format!("{}: too many symbolic links", printable(path))));
                    }
                    names(&target).into_iter().rev().for_each(|name| todo.push_front(name));
                }
                Err(_) => found.push(name),
            },
            _ => {}
        }
    }
    Ok(found)
}
