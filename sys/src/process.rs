//! What other processes have: their group, the ports of their sockets, and the mutexes of their threads.

use crate::check;
use crate::libc::{self, c_int, c_long, c_void, EBADF, ENOTSOCK, ESRCH};
use crate::pidfd::Pidfd;
use std::io;
use std::mem::size_of;
use std::os::unix::io::AsRawFd;

const SO_ACCEPTCONN: c_int = 30;

/// Absent when there is no such process.
pub fn process_group(pid: i32) -> Option<i32> {
    // SAFETY: the call has no pointers.
    check(unsafe { libc::getpgid(pid) }).ok()
}

/// The TCP port on which a descriptor of another process listens; `None` for a descriptor that does not listen, or is closed. Fails where
/// the kernel does not hand the descriptor out: an old kernel, or one whose Yama forbids all tracing.
pub fn listening_port(pid: i32, fd: i32) -> io::Result<Option<u16>> {
    match Pidfd::open(pid).and_then(|process| process.borrow(fd)).and_then(|socket| port_of(&socket)) {
        Err(error) if matches!(error.raw_os_error(), Some(ESRCH | EBADF | ENOTSOCK)) => Ok(None),
        answer => answer,
    }
}

fn port_of(socket: &impl AsRawFd) -> io::Result<Option<u16>> {
    let mut listens: c_int = 0;
    let mut length = size_of::<c_int>() as u32;
    let value = &mut listens as *mut c_int as *mut c_void;
    // SAFETY: the kernel writes at most `length` bytes, those of an int.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_ACCEPTCONN, value, &mut length) })?;
    if listens == 0 {
        return Ok(None);
    }
    // Family and port are at the same places in IPv4 and IPv6 addresses. A longer address is cut.
    let mut address = [0u8; 28];
    let mut length = address.len() as u32;
    // SAFETY: the kernel writes at most `length` bytes, those of the array.
    check(unsafe { libc::getsockname(socket.as_raw_fd(), address.as_mut_ptr() as *mut c_void, &mut length) })?;
    let family = c_int::from(u16::from_ne_bytes([address[0], address[1]]));
    let port = u16::from_be_bytes([address[2], address[3]]);
    Ok(Some(port).filter(|_| family == libc::AF_INET || family == libc::AF_INET6))
}

/// Address of the head of the list of robust mutexes that a thread holds, in the memory of its process; 0 where it has none.
pub fn robust_list(thread: i32) -> io::Result<u64> {
    let (mut head, mut bytes) = (0u64, 0u64);
    // SAFETY: the kernel writes an address and a size, to variables of these sizes.
    let status = unsafe { libc::syscall(libc::SYS_GET_ROBUST_LIST, thread as c_long, &mut head, &mut bytes) };
    check(status as c_int).map(|_| head)
}
