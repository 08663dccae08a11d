//! Processes by descriptor (pidfd_open(2)): unlike a pid, a descriptor never comes to stand for another process.

use crate::libc::{self, c_int, c_long, c_void};
use crate::poll::{self, POLLIN};
use crate::{done, owned, SIGKILL};
use std::io;
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

pub struct Pidfd(OwnedFd);

impl AsRawFd for Pidfd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Pidfd {
    pub fn open(pid: i32) -> io::Result<Pidfd> {
        // SAFETY: the call has no pointers, and its result is a new descriptor.
        unsafe { owned(libc::syscall(libc::SYS_PIDFD_OPEN, pid as c_long, 0 as c_long)) }.map(Pidfd)
    }

    /// While true, everything that was read under its pid so far belongs to this process.
    pub fn exists(&self) -> bool {
        self.signal(0).is_ok()
    }

    /// Harmless when it has ended.
    pub fn kill(&self) {
        let _ = self.signal(SIGKILL);
    }

    /// Whether it has ended, waiting for that until `until`.
    pub fn ends_before(&self, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if poll::wait([(&self.0, POLLIN)], Some(left))[0] != 0 {
                return true;
            }
            if left == Duration::ZERO {
                return false;
            }
        }
    }

    /// ESRCH when it has ended.
    pub fn signal(&self, number: c_int) -> io::Result<()> {
        let none = std::ptr::null::<c_void>();
        // SAFETY: without a `siginfo_t` the kernel makes one.
        done(unsafe { libc::syscall(libc::SYS_PIDFD_SEND_SIGNAL, self.raw(), number, none, 0 as c_long) } as c_int)
    }

    /// A descriptor of this process for an open file of that one.
    pub(crate) fn borrow(&self, fd: c_int) -> io::Result<OwnedFd> {
        // SAFETY: the call has no pointers, and its result is a new descriptor.
        unsafe { owned(libc::syscall(libc::SYS_PIDFD_GETFD, self.raw(), fd, 0 as c_long)) }
    }

    fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
