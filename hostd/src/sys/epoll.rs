//! epoll(7).

use std::io;
use std::os::raw::c_int;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd};

extern "C" {
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut Event) -> c_int;
    fn epoll_wait(epoll: c_int, events: *mut Event, most: c_int, timeout_ms: c_int) -> c_int;
}

const EPOLL_CLOEXEC: c_int = 0o2000000;
const EPOLL_CTL_ADD: c_int = 1;
const EPOLL_CTL_DEL: c_int = 2;
const EPOLLIN: u32 = 1;

/// Packed on this architecture alone.
#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(packed))]
struct Event {
    events: u32,
    key: u64,
}

pub struct Epoll(OwnedFd);

impl Epoll {
    pub fn new() -> io::Result<Epoll> {
        match unsafe { epoll_create1(EPOLL_CLOEXEC) } {
            fd if fd < 0 => Err(io::Error::last_os_error()),
            fd => Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) })),
        }
    }

    /// Has `wait` tell of a descriptor by its key, until `remove`.
    pub fn add(&self, fd: &impl AsRawFd, key: u64) -> io::Result<()> {
        self.control(EPOLL_CTL_ADD, fd, key)
    }

    pub fn remove(&self, fd: &impl AsRawFd) -> io::Result<()> {
        self.control(EPOLL_CTL_DEL, fd, 0)
    }

    fn control(&self, operation: c_int, fd: &impl AsRawFd, key: u64) -> io::Result<()> {
        let mut event = Event { events: EPOLLIN, key };
        match unsafe { epoll_ctl(self.0.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The key of a descriptor that can be read.
    pub fn wait(&self) -> io::Result<u64> {
        let mut event = Event { events: 0, key: 0 };
        loop {
            match unsafe { epoll_wait(self.0.as_raw_fd(), &mut event, 1, -1) } {
                1 => return Ok(event.key),
                _ => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }
}
