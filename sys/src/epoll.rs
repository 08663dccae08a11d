//! epoll(7).

use crate::libc::{self, c_int, EpollEvent};
use crate::{done, owned};
use std::io;
use std::os::unix::io::{AsRawFd, OwnedFd};

const EPOLL_CLOEXEC: c_int = libc::O_CLOEXEC;
const EPOLL_CTL_ADD: c_int = 1;
const EPOLL_CTL_DEL: c_int = 2;
const EPOLLIN: u32 = 1;

pub struct Epoll(OwnedFd);

impl Epoll {
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: the call has no pointers, and its result is a new descriptor.
        unsafe { owned(libc::epoll_create1(EPOLL_CLOEXEC).into()) }.map(Epoll)
    }

    /// Makes `wait` return `key` when `fd` can be read, until `remove`.
    pub fn add(&self, fd: &impl AsRawFd, key: u64) -> io::Result<()> {
        self.control(EPOLL_CTL_ADD, fd, key)
    }

    pub fn remove(&self, fd: &impl AsRawFd) -> io::Result<()> {
        self.control(EPOLL_CTL_DEL, fd, 0)
    }

    fn control(&self, operation: c_int, fd: &impl AsRawFd, key: u64) -> io::Result<()> {
        let mut event = EpollEvent { events: EPOLLIN, key };
        // SAFETY: the kernel reads a `struct epoll_event`.
        done(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) })
    }

    /// The key of a descriptor that can be read.
    pub fn wait(&self) -> io::Result<u64> {
        let mut event = EpollEvent { events: 0, key: 0 };
        loop {
            // SAFETY: the kernel writes at most one `struct epoll_event`.
            match unsafe { libc::epoll_wait(self.0.as_raw_fd(), &mut event, 1, -1) } {
                1 => return Ok(event.key),
                _ => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }
}
