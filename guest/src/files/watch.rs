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
mod tests {
    use super::*;
    use crate::files::uploads::random_hex;
    use std::thread;

    /// A watch of a new folder, run by hand: each step reads what its changes gave.
    fn told(budget: &WatchBudget, steps: &[&dyn Fn(&Path)]) -> Vec<Vec<String>> {
        let top = std::env::temp_dir().join(format!("atoll-watch-{}", random_hex(8).unwrap()));
        fs::create_dir(&top).unwrap();
        let mut watcher = Watcher::new(&top, true, budget).unwrap();
        watcher.add::<Vec<u8>>(&top, &mut None).unwrap();
        let all = steps.iter().map(|step| {
            step(&top);
            let mut bytes = Vec::new();
            let mut entries = Entries::new(&mut bytes);
            // The second look ends a half of a rename.
            let end = watcher.tell(&mut entries).unwrap().or_else(|| watcher.tell(&mut entries).unwrap());
            entries.end().unwrap();
            events(&bytes, &top).into_iter().chain(end.map(|end| format!("ended {}", end))).collect()
        });
        let all = all.collect();
        let _ = fs::remove_dir_all(&top);
        all
    }

    fn events(mut bytes: &[u8], top: &Path) -> Vec<String> {
        let (mut all, mut payload) = (Vec::new(), Vec::new());
        while let Some(kind::ENTRIES) = frame::read_frame(&mut bytes, &mut payload).unwrap() {
            for value in json::parse(std::str::from_utf8(&payload).unwrap()).unwrap().as_list().unwrap() {
                let of = |key: &str| {
                    value.get(key).and_then(Value::as_text).unwrap_or("").replace(top.to_str().unwrap(), "")
                };
                all.push(format!("{} {} {}", of("type"), of("path"), of("from")).trim_end().to_string());
            }
        }
        all
    }

    #[test]
    fn changes_are_told_below_folders_that_are_new_or_moved() {
        let budget = WatchBudget::default();
        let all = told(
            &budget,
            &[
                &|top| fs::create_dir_all(top.join("a/b")).unwrap(),
                &|top| {
                    fs::write(top.join("a/b/file"), "x").unwrap();
                    fs::write(top.join("a/b/file"), "xy").unwrap();
                },
                &|top| fs::rename(top.join("a"), top.join("c")).unwrap(),
                &|top| fs::write(top.join("c/b/file"), "xyz").unwrap(),
                &|top| {
                    fs::write(top.join(".x.atoll-0123456789abcdef"), "x").unwrap();
                    fs::rename(top.join(".x.atoll-0123456789abcdef"), top.join("x")).unwrap();
                },
                &|top| fs::rename(top.join("c"), std::env::temp_dir().join(top.with_extension("gone"))).unwrap(),
                &|top| {
                    fs::write(top.with_extension("gone").join("b/other"), "").unwrap();
                    fs::remove_dir_all(top.with_extension("gone")).unwrap();
                },
                &|top| fs::remove_dir_all(top).unwrap(),
            ],
        );
        assert_eq!(all[0][..2], ["created /a", "created /a/b"]);
        assert_eq!(all[1], ["created /a/b/file", "modified /a/b/file"]);
        assert_eq!(all[2], ["moved /c /a"]);
        assert_eq!(all[3], ["modified /c/b/file"]);
        assert_eq!(all[4], ["created /x"]);
        assert_eq!(all[5], ["removed /c"]);
        assert!(all[6].is_empty());
        assert_eq!(all[7], ["removed /x", "ended removed"]);
        assert_eq!((budget.watches.load(Ordering::SeqCst), budget.folders.load(Ordering::SeqCst)), (0, 0));
    }

    #[test]
    fn an_overflow_is_told_and_the_watch_goes_on() {
        let budget = WatchBudget::default();
        let most: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
        let all = told(
            &budget,
            &[
                &|top| {
                    for number in 0..=most / 2 {
                        let (one, other) = (top.join(number.to_string()), top.join(format!("{}-", number)));
                        fs::write(&one, "").unwrap();
                        fs::rename(one, other).unwrap();
                    }
                    fs::create_dir(top.join("late")).unwrap();
                },
                &|top| fs::write(top.join("late/file"), "").unwrap(),
            ],
        );
        assert_eq!(all[0].iter().filter(|event| *event == "lost").count(), 1);
        assert_eq!(all[1], ["created /late/file"]);
    }

    #[test]
    fn watches_and_folders_are_bounded_and_given_back() {
        let budget = WatchBudget::default();
        let top = std::env::temp_dir().join(format!("atoll-watch-{}", random_hex(8).unwrap()));
        fs::create_dir(&top).unwrap();
        {
            let mut most = Share::of(&budget.watches);
            while most.grow(WATCHES_MAX) {}
            let (one, _other) = UnixStream::pair().unwrap();
            assert_eq!(watch(&top, false, &budget, &one, &mut Vec::new()).unwrap_err().code, "unavailable");
            let mut folders = Share::of(&budget.folders);
            while folders.grow(FOLDERS_MAX) {}
            most.shrink();
            assert_eq!(watch(&top, false, &budget, &one, &mut Vec::new()).unwrap_err().code, "too_large");
        }
        let (one, other) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let running = scope.spawn(|| watch(&top, false, &budget, &one, &mut &one));
            let (mut line, mut reader) = (String::new(), std::io::BufReader::new(&other));
            std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
            assert_eq!((line.as_str(), budget.folders.load(Ordering::SeqCst)), ("{\"ok\":true}\n", 1));
            other.shutdown(std::net::Shutdown::Both).unwrap();
            running.join().unwrap().unwrap();
        });
        assert_eq!((budget.watches.load(Ordering::SeqCst), budget.folders.load(Ordering::SeqCst)), (0, 0));
        fs::remove_dir(&top).unwrap();
        assert_eq!(watch(&top, false, &budget, &one, &mut Vec::new()).unwrap_err().code, "not_found");
    }
}
