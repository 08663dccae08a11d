//! Waiting for files: `poll`, and events of this process that are waited for like files.

pub use crate::libc::PollFd;
use crate::libc::{self, c_int, c_ulong, O_CLOEXEC, O_NONBLOCK};
use crate::{check, owned};
use std::fs::File;
use std::io;
use std::os::unix::io::{AsRawFd, RawFd};
use std::time::Duration;

pub const POLLIN: i16 = 1;
pub const POLLOUT: i16 = 4;
pub const POLLERR: i16 = 8;
pub const POLLHUP: i16 = 16;
/// The other side has closed. poll(2) reports it for all requested events.
pub const GONE: i16 = POLLERR | POLLHUP;

const EFD_NONBLOCK: c_int = O_NONBLOCK;
const FIONREAD: c_ulong = 0x541B;

/// An eventfd: a flag that threads wait for with `poll` beside sockets and pipes.
pub struct Event(File);

impl Event {
    pub fn new() -> io::Result<Event> {
        // SAFETY: the call has no pointers, and its result is a new descriptor.
        unsafe { owned(libc::eventfd(0, EFD_NONBLOCK | O_CLOEXEC).into()) }.map(|fd| Event(File::from(fd)))
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
    let round_up = |time: Duration| ((time.as_nanos() + 999_999) / 1_000_000).min(i32::MAX as u128) as c_int;
    let milliseconds = timeout.map_or(-1, round_up);
    // SAFETY: the kernel writes to as many structures as the slice has.
    if unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as c_ulong, milliseconds) } < 0 {
        for fd in fds {
            fd.revents = 0;
        }
    }
}

/// Waits until an event comes on a stream, a signal comes, or the time is over. A stream without wanted events is not looked at.
pub fn wait<S: AsRawFd, const N: usize>(streams: [(&S, i16); N], timeout: Option<Duration>) -> [i16; N] {
    let mut fds = streams.map(|(stream, wanted)| PollFd::unless_idle(stream, wanted));
    poll(&mut fds, timeout);
    fds.map(|fd| fd.revents)
}

pub fn set_nonblocking(fd: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: neither call has pointers.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | O_NONBLOCK) }).map(drop)
}

/// Bytes that wait to be read in a pipe.
pub fn unread_bytes(fd: &impl AsRawFd) -> usize {
    let mut count: c_int = 0;
    // SAFETY: the kernel writes an int.
    match check(unsafe { libc::ioctl(fd.as_raw_fd(), FIONREAD, &mut count as *mut c_int) }) {
        Ok(_) => count.max(0) as usize,
        Err(_) => 0,
    }
}
