//! Tells what changes in a folder, or in a tree of folders, until the client goes.

use crate::files::access::{self, name_of};
use crate::files::{about, is_temporary_name};
use crate::protocol::bytes;
use crate::protocol::fault::{Fault, Outcome};
use crate::protocol::frame::{self, kind, Entries};
use json::{object, Value};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use sys::inotify::*;
use sys::{PollFd, POLLIN};

/// Of a sandbox, all watches together. The kernel keeps about a kilobyte of each folder.
const WATCHES_MAX: usize = 32;
const FOLDERS_MAX: usize = 16_384;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
/// Changes are gathered for so long, so that a file that is written in many pieces is told once. The second half of a rename comes within it.
const GATHER: Duration = Duration::from_millis(25);

const MASK: u32 = IN_CREATE
    | IN_DELETE
    | IN_MODIFY
    | IN_ATTRIB
    | IN_MOVED_FROM
    | IN_MOVED_TO
    | IN_DELETE_SELF
    | IN_MOVE_SELF
    | IN_ONLYDIR
    | IN_EXCL_UNLINK;

/// How much of its bounds the sandbox uses.
#[derive(Default)]
pub struct WatchBudget {
    watches: AtomicUsize,
    folders: AtomicUsize,
}

/// A part of a bound that is given back by a drop.
struct Share<'a>(&'a AtomicUsize, usize);

impl<'a> Share<'a> {
    fn of(counter: &'a AtomicUsize) -> Share<'a> {
        Share(counter, 0)
    }

    fn grow(&mut self, max: usize) -> bool {
        if self.0.fetch_add(1, Ordering::SeqCst) >= max {
            self.0.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        self.1 += 1;
        true
    }

    fn shrink(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
        self.1 -= 1;
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

/// Ends when the client closes or sends anything, and with a result when there is no more to tell.
pub fn watch(
    path: &Path,
    recursive: bool,
    budget: &WatchBudget,
    stream: &UnixStream,
    writer: &mut impl Write,
) -> Outcome<()> {
    let mut share = Share::of(&budget.watches);
    if !share.grow(WATCHES_MAX) {
        return Err(Fault::unavailable(format!("more than {} watches in the sandbox", WATCHES_MAX)));
    }
    let mut watcher = Watcher::new(path, recursive, budget)?;
    watcher.add::<Vec<u8>>(path, &mut None)?;
    frame::write_line(writer, &object([("ok", true.into())]))?;
    loop {
        let wait = watcher.half.as_ref().map(|_| GATHER);
        let mut fds = [PollFd::new(stream, POLLIN), PollFd::new(&watcher.inotify, POLLIN)];
        sys::poll(&mut fds, wait);
        if fds[0].revents != 0 || is_gone(stream) {
            return Ok(());
        }
        let mut entries = Entries::new(writer);
        let end = watcher.tell(&mut entries)?;
        entries.flush()?;
        if let Some(end) = end {
            let result = object([("ok", true.into()), ("ended", end.into())]);
            return Ok(frame::write_value(writer, kind::RESULT, &result)?);
        }
    }
}

/// Waits, so that changes gather.
fn is_gone(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, POLLIN)];
    sys::poll(&mut fds, Some(GATHER));
    fds[0].revents != 0
}

/// The first half of a rename, of which the second one may follow.
struct Half {
    cookie: u32,
    path: PathBuf,
    is_folder: bool,
}

struct Watcher<'a> {
    root: &'a Path,
    recursive: bool,
    inotify: Inotify,
    /// By the number of the watch.
    folders: HashMap<i32, PathBuf>,
    share: Share<'a>,
    half: Option<Half>,
}

/// Where events go; none while a tree is added that was there before.
type Told<'a, 'b, W> = Option<&'a mut Entries<'b, W>>;

impl<'a> Watcher<'a> {
    fn new(root: &'a Path, recursive: bool, budget: &'a WatchBudget) -> Outcome<Watcher<'a>> {
        let share = Share::of(&budget.folders);
        Ok(Watcher { root, recursive, inotify: instance()?, folders: HashMap::new(), share, half: None })
    }

    /// Watches a folder, and those below it. What is in a new folder may be older than its watch, so it is told as created; some of it twice.
    fn add<W: Write>(&mut self, top: &Path, told: &mut Told<'_, '_, W>) -> Outcome<()> {
        let mut waiting = vec![top.to_path_buf()];
        while let Some(path) = waiting.pop() {
            let is_root = path == self.root;
            let flags = if is_root { sys::O_DIRECTORY } else { sys::O_DIRECTORY | sys::O_NOFOLLOW };
            let folder = match access::open(&path, flags) {
                Ok(folder) => folder,
                Err(error) if is_root => return Err(about(error, &path)),
                // It is gone by now, or the user may not read it.
                Err(_) => continue,
            };
            match self.inotify.add(&name_of(&folder), MASK) {
                Ok(number) => {
                    if self.folders.insert(number, path.clone()).is_none() && !self.share.grow(FOLDERS_MAX) {
                        let _ = self.inotify.remove(number);
                        self.folders.remove(&number);
                        return Err(Fault::too_large(format!("more than {} folders to watch", FOLDERS_MAX)));
                    }
                }
                Err(error) if error.raw_os_error() == Some(ENOSPC) => return Err(no_more("max_user_watches")),
                Err(error) if is_root => return Err(about(error, &path)),
                Err(_) => continue,
            }
            if !self.recursive {
                return Ok(());
            }
            let found = match fs::read_dir(name_of(&folder)) {
                Ok(found) => found,
                Err(_) => continue,
            };
            for entry in found.filter_map(Result::ok) {
                let is_folder = entry.file_type().map_or(false, |kind| kind.is_dir());
                let path = path.join(entry.file_name());
                if let Some(entries) = told {
                    if !is_temporary_name(&entry.file_name()) {
                        entries.push(&event("created", &path, is_folder, None))?;
                    }
                }
                if is_folder {
                    waiting.push(path);
                }
            }
        }
        Ok(())
    }

    /// Tells what has happened; returns why nothing more will.
    fn tell<W: Write>(&mut self, entries: &mut Entries<'_, W>) -> Outcome<Option<&'static str>> {
        let mut modified = HashSet::new();
        let mut changes = Vec::new();
        let mut is_any = false;
        while self.inotify.read(&mut changes).map_err(|error| Fault::own(error, "watch"))? {
            is_any = true;
            for change in changes.drain(..) {
                if let Some(end) = self.take(change, &mut modified, entries)? {
                    return Ok(Some(end));
                }
            }
        }
        if !is_any {
            self.end_half(entries)?;
        }
        Ok(None)
    }

    fn take<W: Write>(
        &mut self,
        change: Change,
        modified: &mut HashSet<PathBuf>,
        entries: &mut Entries<'_, W>,
    ) -> Outcome<Option<&'static str>> {
        let Change { watch, mask, cookie, name } = change;
        let has = |bit: u32| mask & bit != 0;
        if has(IN_Q_OVERFLOW) {
            self.start_again()?;
            entries.push(&object([("type", "lost".into())]))?;
            return Ok(None);
        }
        let folder = match self.folders.get(&watch) {
            Some(folder) => folder.clone(),
            // Of a watch that is removed by now.
            None => return Ok(None),
        };
        if has(IN_IGNORED) {
            self.folders.remove(&watch);
            self.share.shrink();
        }
        if name.is_empty() {
            let is_root = folder == self.root;
            return Ok(match mask {
                _ if !is_root => None,
                _ if has(IN_DELETE_SELF) => Some("removed"),
                _ if has(IN_MOVE_SELF) => Some("moved"),
                _ if has(IN_UNMOUNT | IN_IGNORED) => Some("removed"),
                _ => None,
            });
        }
        let (path, is_folder) = (folder.join(&name), has(IN_ISDIR));
        let half = match self.half.take() {
            Some(half) if has(IN_MOVED_TO) && half.cookie == cookie => Some(half),
            other => {
                self.half = other;
                self.end_half(entries)?;
                None
            }
        };
        if !has(IN_MODIFY | IN_ATTRIB) {
            modified.remove(&path);
        }
        if has(IN_MOVED_FROM) {
            self.half = Some(Half { cookie, path, is_folder });
            return Ok(None);
        }
        if is_temporary_name(&name) {
            return Ok(None);
        }
        // A file that was written under a temporary name is new.
        match half.filter(|half| half.path.file_name().map_or(false, |name| !is_temporary_name(name))) {
            Some(half) => {
                self.rename(&half.path, &path);
                entries.push(&event("moved", &path, is_folder, Some(&half.path)))?;
            }
            None if has(IN_CREATE | IN_MOVED_TO) => {
                entries.push(&event("created", &path, is_folder, None))?;
                if is_folder && self.recursive {
                    self.add(&path, &mut Some(entries))?;
                }
            }
            None if has(IN_DELETE) => entries.push(&event("removed", &path, is_folder, None))?,
            None if modified.insert(path.clone()) => entries.push(&event("modified", &path, is_folder, None))?,
            None => {}
        }
        Ok(None)
    }

    /// What was moved and did not arrive here has left the tree.
    fn end_half<W: Write>(&mut self, entries: &mut Entries<'_, W>) -> Outcome<()> {
        if let Some(Half { path, is_folder, .. }) = self.half.take() {
            let left = self.folders.iter().filter(|(_, folder)| folder.starts_with(&path)).map(|(watch, _)| *watch);
            for watch in left.collect::<Vec<_>>() {
                let _ = self.inotify.remove(watch);
                self.folders.remove(&watch);
                self.share.shrink();
            }
            if path.file_name().map_or(false, |name| !is_temporary_name(name)) {
                entries.push(&event("removed", &path, is_folder, None))?;
            }
        }
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        for folder in self.folders.values_mut() {
            if let Ok(rest) = folder.strip_prefix(from) {
                *folder = if rest.as_os_str().is_empty() { to.to_path_buf() } else { to.join(rest) };
            }
        }
    }

    /// After an overflow nobody knows which folders there are.
    fn start_again(&mut self) -> Outcome<()> {
        self.inotify = instance()?;
        for _ in self.folders.drain() {
            self.share.shrink();
        }
        self.half = None;
        self.add::<Vec<u8>>(self.root, &mut None)
    }
}

fn instance() -> Outcome<Inotify> {
    Inotify::new().map_err(|error| match error.raw_os_error() {
        Some(EMFILE) => no_more("max_user_instances"),
        _ => Fault::own(error, "watch"),
    })
}

fn no_more(limit: &str) -> Fault {
    Fault::unavailable(format!("the machine of the server has no watches left (fs.inotify.{})", limit))
}

fn event(kind: &'static str, path: &Path, is_folder: bool, from: Option<&Path>) -> Value {
    let mut fields = bytes::fields("path", "pathBase64", path);
    fields.push(("type", kind.into()));
    fields.push(("isDir", is_folder.into()));
    if let Some(from) = from {
        fields.extend(bytes::fields("from", "fromBase64", from));
    }
    object(fields)
}

#[cfg(test)]
mod tests;
