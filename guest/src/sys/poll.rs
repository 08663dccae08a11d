//! Waiting for files: `poll`, and events of this process that are waited for like files.

use super::{check, O_CLOEXEC, O_NONBLOCK};
use std::fs::File;
use std::io;
use std::os::raw::{c_int, c_uint, c_ulong};
use std::os::unix::io::{AsRawFd, FromRawFd, RawFd};
use std::time::Duration;

pub const POLLIN: i16 = 1;
pub const POLLOUT: i16 = 4;
pub const POLLERR: i16 = 8;
pub const POLLHUP: i16 = 16;

const F_GETFL: c_int = 3;
const F_SETFL: c_int = 4;
const EFD_NONBLOCK: c_int = O_NONBLOCK;
const FIONREAD: c_ulong = 0x541B;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct PollFd {
    fd: c_int,
    events: i16,
    pub revents: i16,
}

extern "C" {
    #[link_name = "eventfd"]
    fn c_eventfd(initial: c_uint, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
    #[link_name = "poll"]
    fn c_poll(fds: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int;
}

/// An eventfd: a flag that threads wait for with `poll` beside sockets and pipes.
pub struct Event(File);

impl Event {
    pub fn new() -> io::Result<Event> {
        let fd = check(unsafe { c_eventfd(0, EFD_NONBLOCK | O_CLOEXEC) })?;
        Ok(Event(unsafe { File::from_raw_fd(fd) }))
    }

    pub fn notify(&self) {
        let _ = io::Write::write(&mut &self.0, &1u64.to_ne_bytes());
    }

    pub fn clear(&self) {
        let _ = io::Read::read(&mut &self.0, &mut [0u8; 8]);
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl PollFd {
    pub fn new(fd: &impl AsRawFd, events: i16) -> PollFd {
        PollFd { fd: fd.as_raw_fd(), events, revents: 0 }
    }

    /// Skipped without requested events: an unrequested hang-up would wake the caller for ever.
    pub fn unless_idle(fd: &impl AsRawFd, events: i16) -> PollFd {
        PollFd { fd: if events == 0 { -1 } else { fd.as_raw_fd() }, events, revents: 0 }
    }

    pub fn ready(&self, events: i16) -> bool {
        self.revents & events != 0
    }
}

/// Waits for any of `fds`, at most `timeout`. An interrupted wait is like one in which nothing came.
pub fn poll(fds: &mut [PollFd], timeout: Option<Duration>) {
    // Rounded up, so that a wait for a deadline does not spin through its last millisecond.
    let round_up = |time: Duration| ((time.as_micros() + 999) / 1000).min(i32::MAX as u128) as c_int;
    let milliseconds = timeout.map_or(-1, round_up);
    if unsafe { c_poll(fds.as_mut_ptr(), fds.len() as c_ulong, milliseconds) } < 0 {
        for fd in fds {
            fd.revents = 0;
        }
    }
}

pub fn set_nonblocking(fd: &impl AsRawFd) -> io::Result<()> {
    let flags = check(unsafe { fcntl(fd.as_raw_fd(), F_GETFL) })?;
    check(unsafe { fcntl(fd.as_raw_fd(), F_SETFL, flags | O_NONBLOCK) }).map(|_| ())
}

/// Bytes that wait to be read in a pipe.
pub fn unread_bytes(fd: &impl AsRawFd) -> usize {
    let mut count: c_int = 0;
    match check(unsafe { ioctl(fd.as_raw_fd(), FIONREAD, &mut count as *mut c_int) }) {
        Ok(_) => count.max(0) as usize,
        Err(_) => 0,
    }
}
