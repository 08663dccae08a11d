//! What happens between fork and exec: only async-signal-safe calls, no allocation.

use super::{check, signals, umask, O_CLOEXEC, O_WRONLY};
use std::io;
use std::os::raw::{c_char, c_int, c_uint, c_ulong, c_void};

const RLIMIT_NOFILE: c_int = 7;
const TIOCSCTTY: c_ulong = 0x540E;

/// Added to the errno of a failed step before `exec`, so that the parent can tell the step (std passes the number on).
pub const FAULT_CWD: i32 = 1 << 16;
pub const FAULT_USER: i32 = 1 << 17;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileLimit {
    pub soft: u64,
    pub hard: u64,
}

extern "C" {
    fn chdir(path: *const c_char) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn fchown(fd: c_int, uid: c_uint, gid: c_uint) -> c_int;
    fn getrlimit(resource: c_int, limit: *mut FileLimit) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn setgid(gid: c_uint) -> c_int;
    fn setgroups(count: usize, groups: *const c_uint) -> c_int;
    fn setrlimit(resource: c_int, limit: *const FileLimit) -> c_int;
    fn setsid() -> c_int;
    fn setuid(uid: c_uint) -> c_int;
    fn write(fd: c_int, data: *const c_void, length: usize) -> isize;
}

/// What a child becomes before it executes its program.
pub struct ChildSetup {
    pub terminal: bool,
    /// uid, gid and supplementary groups; absent: those of the guest.
    pub user: Option<(u32, u32, Vec<u32>)>,
    pub cwd: std::ffi::CString,
    pub file_limit: FileLimit,
    /// In decimal digits.
    pub oom_score_adj: Vec<u8>,
}

impl ChildSetup {
    pub fn apply(&self) -> io::Result<()> {
        unsafe {
            check(setsid())?;
            if self.terminal {
                check(ioctl(0, TIOCSCTTY, 0 as c_int))?;
            }
            umask(0o022);
            setrlimit(RLIMIT_NOFILE, &self.file_limit);
            let path = b"/proc/self/oom_score_adj\0".as_ptr() as *const c_char;
            let fd = open(path, O_WRONLY | O_CLOEXEC);
            if fd >= 0 {
                write(fd, self.oom_score_adj.as_ptr() as *const c_void, self.oom_score_adj.len());
                close(fd);
            }
            signals::reset();
            if let Some((uid, gid, groups)) = &self.user {
                // So that the user can open /dev/stdout and /dev/stderr again.
                for output in [1, 2] {
                    fchown(output, *uid, *gid);
                }
                step(setgroups(groups.len(), groups.as_ptr()), FAULT_USER)?;
                step(setgid(*gid), FAULT_USER)?;
                step(setuid(*uid), FAULT_USER)?;
            }
            step(chdir(self.cwd.as_ptr()), FAULT_CWD)
        }
    }
}

fn step(result: c_int, mark: i32) -> io::Result<()> {
    match check(result) {
        Ok(_) => Ok(()),
        Err(error) => Err(io::Error::from_raw_os_error(mark | error.raw_os_error().unwrap_or(0))),
    }
}

/// Raises the soft limit of open files as far as allowed and `wanted`; returns the limits before, for the children.
pub fn raise_file_limit(wanted: u64) -> FileLimit {
    let mut limit = FileLimit { soft: 0, hard: 0 };
    unsafe { getrlimit(RLIMIT_NOFILE, &mut limit) };
    let raised = FileLimit { soft: limit.soft.max(wanted.min(limit.hard)), hard: limit.hard };
    unsafe { setrlimit(RLIMIT_NOFILE, &raised) };
    limit
}
