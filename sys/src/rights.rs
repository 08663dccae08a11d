//! The rights to files of one thread: those of a user of the sandbox, while the process stays root's.

use crate::check;
use crate::libc::{self, c_int, c_uint, c_ulong, CapabilityData, CapabilityHeader};
use std::io;
use std::sync::{Mutex, MutexGuard};

const PR_GET_DUMPABLE: c_int = 3;
const PR_SET_DUMPABLE: c_int = 4;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

static CHANGE: Mutex<()> = Mutex::new(());

/// Holds `act_as` back. That makes the process undumpable for a moment, and a child that is forked meanwhile may be unable to open its own
/// files in `/proc`.
pub fn hold_acting() -> MutexGuard<'static, ()> {
    CHANGE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The user by whose rights this thread reaches files.
pub fn file_uid() -> u32 {
    // SAFETY: the call changes nothing and has no pointers.
    unsafe { libc::setfsuid(c_uint::MAX) as u32 }
}

/// From here on this thread opens, makes and removes files as this user: the kernel takes away the capabilities that override permissions
/// (capabilities(7), setfsuid(2)). For signals and ptrace the thread stays root's. Not undone: the thread ends with its operation.
pub fn act_as(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let own = crate::effective_uid();
    if uid == own {
        return Ok(());
    }
    let _alone = hold_acting();
    // SAFETY: the call has no pointers.
    let dumpable = unsafe { libc::prctl(PR_GET_DUMPABLE) };
    // The function of libc would change the groups of all threads.
    // SAFETY: the kernel reads as many groups as the slice has.
    check(unsafe { libc::syscall(libc::SYS_SETGROUPS, groups.len(), groups.as_ptr()) } as c_int)?;
    // Both calls return the former id and no failure, so an invalid id asks for the present one.
    // SAFETY: the calls change the calling thread alone, and have no pointers.
    let acts = unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        (libc::setfsgid(c_uint::MAX) as u32, libc::setfsuid(c_uint::MAX) as u32) == (gid, uid)
    };
    // The kernel has made the whole process undumpable. Its ids are root's, so the user cannot trace it anyway.
    if dumpable == 1 {
        // SAFETY: the call has no pointers.
        unsafe { libc::prctl(PR_SET_DUMPABLE, 1 as c_ulong, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong) };
    }
    if !acts {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    drop_capabilities()
}

/// Runs `work` with the rights of this user and group to files, and with the capabilities of root.
pub fn acting_as<Answer>(id: u32, work: impl FnOnce() -> Answer) -> Answer {
    let before = capabilities();
    // SAFETY: the calls change the calling thread alone, and have no pointers.
    let (user, group) = unsafe { (libc::setfsuid(id), libc::setfsgid(id)) };
    // The kernel takes the capabilities for files away with the change of the user. Without them the work fails.
    let _ = before.and_then(|before| set_capabilities(&before));
    let answer = work();
    // SAFETY: as above.
    unsafe { (libc::setfsuid(user as c_uint), libc::setfsgid(group as c_uint)) };
    answer
}

/// The kernel drops those for files alone by itself, so this drops all.
fn drop_capabilities() -> io::Result<()> {
    let mut data = capabilities()?;
    for part in &mut data {
        part.effective = 0;
    }
    set_capabilities(&data)
}

/// The capabilities of the calling thread.
fn capabilities() -> io::Result<[CapabilityData; 2]> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut data = [CapabilityData::default(); 2];
    // SAFETY: of this version the kernel writes two structures.
    check(unsafe { libc::capget(&mut header, data.as_mut_ptr()) })?;
    Ok(data)
}

fn set_capabilities(data: &[CapabilityData; 2]) -> io::Result<()> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    // SAFETY: of this version the kernel reads two structures.
    check(unsafe { libc::capset(&mut header, data.as_ptr()) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::thread;

    fn status(of: &str) -> String {
        let wanted = ["Uid:", "Gid:", "Groups:", "CapEff:"];
        let text = fs::read_to_string(of).unwrap();
        text.lines().filter(|line| wanted.iter().any(|key| line.starts_with(key))).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn one_thread_acts_as_a_user_and_the_process_stays_as_it_was() {
        assert_eq!(crate::effective_uid(), 0, "run the tests as root");
        let before = status("/proc/self/status");
        let after = thread::spawn(|| {
            act_as(4242, 4243, &[4243, 4244]).unwrap();
            assert_eq!(fs::read("/etc/shadow").unwrap_err().raw_os_error(), Some(13));
            status("/proc/thread-self/status")
        });
        let after = after.join().unwrap();
        assert!(after.contains("Uid:\t0\t0\t0\t4242") && after.contains("Gid:\t0\t0\t0\t4243"), "{}", after);
        assert!(after.contains("Groups:\t4243 4244") && after.contains("CapEff:\t0000000000000000"), "{}", after);
        assert_eq!(status("/proc/self/status"), before);
        // SAFETY: the call has no pointers.
        assert_eq!(unsafe { libc::prctl(PR_GET_DUMPABLE) }, 1);
    }
}
