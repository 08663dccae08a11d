//! Processes by descriptor (pidfd_open(2)): unlike its number, one never comes to stand for another process.

use std::io;
use std::os::raw::{c_int, c_long, c_void};
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::poll;

extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

// These numbers are the same on every architecture (asm-generic/unistd.h).
const SYS_PIDFD_SEND_SIGNAL: c_long = 424;
const SYS_PIDFD_OPEN: c_long = 434;
const SIGKILL: c_int = 9;

pub struct Pidfd(OwnedFd);

impl AsRawFd for Pidfd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Pidfd {
    pub fn open(pid: i32) -> io::Result<Pidfd> {
        match unsafe { syscall(SYS_PIDFD_OPEN, pid as c_long, 0 as c_long) } {
            fd if fd < 0 => Err(io::Error::last_os_error()),
            fd => Ok(Pidfd(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })),
        }
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
            if poll::wait([(&self.0, poll::IN)], Some(left))[0] != 0 {
                return true;
            }
            if left == Duration::ZERO {
                return false;
            }
        }
    }

    fn signal(&self, number: c_int) -> io::Result<()> {
        let none = std::ptr::null::<c_void>();
        match unsafe { syscall(SYS_PIDFD_SEND_SIGNAL, self.0.as_raw_fd(), number, none, 0 as c_long) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
