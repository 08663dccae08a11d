//! Checks whether what CRIU has saved is known to come back. The processes still stand where the dump saw them, so a refusal costs them
//! nothing.
//!
//! CRIU often dumps without complaint what it saves wrongly or cannot restore. So each object must be of a kind whose return has been tried
//! (test/conformance/runc-kept.test.ts).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::criu_image::{fields, of_each_entry, Field};
use crate::process::freeze::members;
use crate::protocol::fields::Fields;
use sys::Error;

/// The kinds of open files (images/fdinfo.proto): those that come back, and those that do not or that nobody has tried.
const KEPT: [u64; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 17, 18, 20];
const OTHERS: [(u64, &str); 4] = [(10, "packet socket"), (12, "fanotify group"), (15, "tun device"), (19, "BPF map")];
const INOTIFY: u64 = 8;

const KIND: u64 = 1;
/// Fields: of a file its inotify group, of a group its watches, of a watch its device and handle, of a handle its path.
const GROUP: u64 = 13;
const WATCH: u64 = 5;
const DEVICE: u64 = 5;
const HANDLE: u64 = 7;
const PATH: u64 = 4;

/// A lock's field (images/file-lock.proto) and its bits.
const LOCK_FLAGS: u64 = 1;
const POSIX: u64 = 1;
const LEASE: u64 = 8;

#[derive(Debug)]
pub struct Check {
    images: PathBuf,
    /// A path on the file system of the files that are mounted into the sandbox one by one.
    beside: PathBuf,
    keeps_posix_locks: bool,
    keeps_semaphores: bool,
    /// The control group of the processes, in each hierarchy.
    groups: Vec<PathBuf>,
}

impl Check {
    pub fn from_fields(fields: &mut Fields) -> Result<Check, Error> {
        Ok(Check {
            images: fields.path("images")?,
            beside: fields.path("beside")?,
            keeps_posix_locks: fields.flag("keepsPosixLocks")?,
            keeps_semaphores: fields.flag("keepsSemaphores")?,
            groups: fields.some_paths("groups")?,
        })
    }
}

/// Fails with the reason where something may not come back.
pub fn check(Check { images, beside, keeps_posix_locks, keeps_semaphores, groups }: &Check) -> Result<(), Error> {
    if !keeps_semaphores && members(groups).into_iter().any(has_semaphore) {
        let reason = "an eventfd is a semaphore (EFD_SEMAPHORE), which this CRIU makes a counter";
        return Err(Error::new(format!("{reason}; npm run setup builds one that keeps it")));
    }
    let device = beside.metadata().map_err(|error| Error::io("stat", beside.display(), error))?.dev();
    let device = kernel_device(device);
    each(&images.join("files.img"), |entry| file_fault(entry, device))?;
    each(&images.join("filelocks.img"), |entry| lock_fault(entry, *keeps_posix_locks))
}

/// Such a CRIU does not save EFD_SEMAPHORE, so /proc is read, which tells it since Linux 6.5.
fn has_semaphore(process: i32) -> bool {
    let files = fs::read_dir(format!("/proc/{process}/fdinfo")).into_iter().flatten().flatten();
    let mut told = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    told.any(|told| told.lines().any(|line| line == "eventfd-semaphore: 1"))
}

/// Fails with the first fault of an entry. An absent image has no fault.
fn each(path: &Path, fault: impl Fn(&[u8]) -> Option<String>) -> Result<(), Error> {
    if !path.exists() {
        return Ok(());
    }
    of_each_entry(path, |_, entry| fault(entry).map_or(Ok(()), |fault| Err(Error::new(fault))))
}

fn file_fault(entry: &[u8], mounted: u64) -> Option<String> {
    let file = match fields(entry) {
        Some(file) => file,
        None => return Some("CRIU saved an open file that cannot be read".into()),
    };
    let kind = find(&file, KIND).map_or(0, |field| field.value);
    if !KEPT.contains(&kind) {
        let name =
            OTHERS.iter().find(|(number, _)| *number == kind).map_or("file of an unknown kind", |(_, name)| name);
        return Some(format!("a {name} is open, which does not come back"));
    }
    if kind != INOTIFY {
        return None;
    }
    let group = fields(find(&file, GROUP)?.content)?;
    let mut faults =
        group.iter().filter(|field| field.number == WATCH).filter_map(|field| watch_fault(field.content, mounted));
    faults.next()
}

/// A restore finds a watch without a path by its handle, which stands for the file of this sandbox alone, or for a removed one.
fn watch_fault(watch: &[u8], mounted: u64) -> Option<String> {
    let watch = fields(watch).unwrap_or_default();
    let handle = find(&watch, HANDLE).and_then(|field| fields(field.content)).unwrap_or_default();
    if find(&handle, PATH).is_some() {
        return None;
    }
    let reason = match find(&watch, DEVICE) {
        Some(device) if device.value == mounted => {
            "a file that is mounted by itself, such as /etc/hosts, is watched (inotify), and this CRIU loses it"
        }
        _ => "a removed file that is still open is watched (inotify)",
    };
    Some(reason.into())
}

fn lock_fault(entry: &[u8], keeps_posix_locks: bool) -> Option<String> {
    let lock = fields(entry)?;
    let flags = find(&lock, LOCK_FLAGS)?.value;
    let reason = if flags & LEASE != 0 {
        "a process holds a lease on a file (F_SETLEASE), which does not come back in every case"
    } else if flags & POSIX != 0 && !keeps_posix_locks {
        "a process holds a POSIX lock (fcntl) on a file, which this CRIU may lose; npm run setup builds one that keeps it"
    } else {
        return None;
    };
    Some(reason.into())
}

fn find<'a, 'b>(message: &'b [Field<'a>], number: u64) -> Option<&'b Field<'a>> {
    message.iter().find(|field| field.number == number)
}

/// A device number in the kernel's own form, which watches have: twenty bits of minor number.
fn kernel_device(device: u64) -> u64 {
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & 0xffff_ff00);
    major << 20 | minor
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::criu_image::building::{message, number};

    fn watch(device: u64, path: Option<&str>) -> Vec<u8> {
        let mut handle = vec![number(1, 8), number(2, 1), number(3, 77)];
        handle.extend(path.map(|path| message(PATH, &[path])));
        let watch = message(WATCH, &[number(2, 5), number(DEVICE, device), message(HANDLE, &handle)]);
        [number(KIND, INOTIFY), number(2, 1), message(GROUP, &[number(1, 1), watch])].concat()
    }

    #[test]
    fn kinds_that_were_tried_pass_and_others_are_named() {
        for kind in KEPT {
            assert_eq!(file_fault(&[number(KIND, kind), number(2, 1)].concat(), 1).filter(|_| kind != INOTIFY), None);
        }
        for (kind, name) in OTHERS {
            assert!(file_fault(&number(KIND, kind), 1).unwrap().contains(name));
        }
        assert!(file_fault(&number(KIND, 99), 1).unwrap().contains("unknown kind"));
        assert!(file_fault(&[0xff; 12], 1).is_some());
    }

    #[test]
    fn a_watch_without_a_path_is_refused() {
        assert!(file_fault(&watch(7, None), 7).unwrap().contains("/etc/hosts"));
        assert!(file_fault(&watch(8, None), 7).unwrap().contains("removed"));
        assert_eq!(file_fault(&watch(7, Some("/etc/hosts")), 7), None);
        assert_eq!(file_fault(&watch(8, Some("/root/file")), 7), None);
    }

    #[test]
    fn leases_are_refused_and_posix_locks_where_they_are_lost() {
        let lock = |flag| [number(LOCK_FLAGS, flag), number(2, 1)].concat();
        let told = |flag, kept| lock_fault(&lock(flag), kept).is_some();
        assert_eq!((told(POSIX, false), told(POSIX, true)), (true, false));
        assert_eq!((told(LEASE, true), told(2, false), told(4, false)), (true, false, false));
    }

    #[test]
    fn a_device_number_has_the_form_of_the_kernel() {
        assert_eq!(kernel_device(0xfd02), 0xfd << 20 | 2);
        // Minor numbers beyond a byte, as btrfs and overlay have them.
        assert_eq!(kernel_device(0x10_0000_u64 | 0x34), 0x134);
    }
}
