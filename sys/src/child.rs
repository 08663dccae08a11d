//! What happens between fork and exec: only async-signal-safe calls, no allocation.

use crate::libc::{self, c_char, c_int, c_ulong, c_void, FileLimit};
use crate::{check, done, signals};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

const RLIMIT_NOFILE: c_int = 7;
const TIOCSCTTY: c_ulong = 0x540E;

/// Added to the errno of a failed step before `exec`, so that the parent can tell the step (std passes the number on).
pub const FAULT_CWD: i32 = 1 << 16;
pub const FAULT_USER: i32 = 1 << 17;

/// Has the program of a command lead a process group of its own.
pub fn lead_own_group(command: &mut Command) -> &mut Command {
    // SAFETY: the closure runs in the child after fork(2); it allocates nothing and makes one system call.
    unsafe { command.pre_exec(lead_group) }
}

/// Has the program of a command join control groups: those whose `cgroup.procs` these files are.
pub fn join_groups(command: &mut Command, members: Vec<File>) {
    // Number 0 is the process that writes it.
    let join = move || members.iter().try_for_each(|mut file| file.write_all(b"0"));
    // SAFETY: the closure runs in the child after fork(2); it allocates nothing and only writes to descriptors.
    unsafe { command.pre_exec(join) };
}

fn lead_group() -> io::Result<()> {
    // SAFETY: the call has no pointers.
    done(unsafe { libc::setpgid(0, 0) })
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
    /// Applies the setup in the child of a command.
    pub fn apply_to(self, command: &mut Command) {
        // SAFETY: the closure runs in the child after fork(2); it only makes system calls on memory that was made before.
        unsafe { command.pre_exec(move || self.apply()) };
    }

    fn apply(&self) -> io::Result<()> {
        // SAFETY: each pointer is of a field or a constant that lives as long as this call; the strings end with NUL, and each length is that of
        // its slice.
        unsafe {
            check(libc::setsid())?;
            if self.terminal {
                check(libc::ioctl(0, TIOCSCTTY, 0 as c_int))?;
            }
            libc::umask(0o022);
            libc::setrlimit(RLIMIT_NOFILE, &self.file_limit);
            let path = b"/proc/self/oom_score_adj\0".as_ptr() as *const c_char;
            let fd = libc::open(path, libc::O_WRONLY | libc::O_CLOEXEC);
            if fd >= 0 {
                libc::write(fd, self.oom_score_adj.as_ptr() as *const c_void, self.oom_score_adj.len());
                libc::close(fd);
            }
            signals::reset();
            if let Some((uid, gid, groups)) = &self.user {
                // So that the user can open /dev/stdout and /dev/stderr again.
                for output in [1, 2] {
                    libc::fchown(output, *uid, *gid);
                }
                step(libc::setgroups(groups.len(), groups.as_ptr()), FAULT_USER)?;
                step(libc::setgid(*gid), FAULT_USER)?;
                step(libc::setuid(*uid), FAULT_USER)?;
            }
            step(libc::chdir(self.cwd.as_ptr()), FAULT_CWD)
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
    // SAFETY: the kernel writes a `struct rlimit`.
    unsafe { libc::getrlimit(RLIMIT_NOFILE, &mut limit) };
    let raised = FileLimit { soft: limit.soft.max(wanted.min(limit.hard)), hard: limit.hard };
    // SAFETY: the kernel reads a `struct rlimit`.
    unsafe { libc::setrlimit(RLIMIT_NOFILE, &raised) };
    limit
}
