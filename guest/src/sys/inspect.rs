//! What other processes have: their group, and the ports of their sockets; and signals that cannot hit another one.

use super::check;
use std::fs::File;
use std::io;
use std::os::raw::{c_int, c_long, c_void};
use std::os::unix::io::{AsRawFd, FromRawFd};

/// The same on every architecture that has them (Linux 5.1, 5.3 and 5.6).
const SYS_PIDFD_SEND_SIGNAL: c_long = 424;
const SYS_PIDFD_OPEN: c_long = 434;
const SYS_PIDFD_GETFD: c_long = 438;
const SOL_SOCKET: c_int = 1;
const SO_ACCEPTCONN: c_int = 30;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const ESRCH: i32 = 3;
const EBADF: i32 = 9;
const ENOTSOCK: i32 = 88;

extern "C" {
    fn getpgid(pid: c_int) -> c_int;
    fn getsockname(fd: c_int, address: *mut c_void, length: *mut u32) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, option: c_int, value: *mut c_void, length: *mut u32) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

/// Absent when there is no such process.
pub fn process_group(pid: i32) -> Option<i32> {
    check(unsafe { getpgid(pid) }).ok()
}

/// The TCP port on which a descriptor of another process listens; none for what does not, or has gone. Fails where the kernel
/// does not hand the descriptor out: an old one, or one whose Yama lets nobody trace.
pub fn listening_port(pid: i32, fd: i32) -> io::Result<Option<u16>> {
    match borrow(pid, fd).and_then(|socket| port_of(&socket)) {
        Err(error) if matches!(error.raw_os_error(), Some(ESRCH | EBADF | ENOTSOCK)) => Ok(None),
        answer => answer,
    }
}

/// A descriptor for an open file of another process; closed on exec.
fn borrow(pid: i32, fd: i32) -> io::Result<File> {
    let process = open_process(pid)?;
    file(unsafe { syscall(SYS_PIDFD_GETFD, process.as_raw_fd(), fd, 0) })
}

/// A pidfd, which goes on to name this process when another one has its number.
pub fn open_process(pid: i32) -> io::Result<File> {
    file(unsafe { syscall(SYS_PIDFD_OPEN, pid, 0) })
}

pub fn signal_process(process: &File, signal: i32) -> io::Result<()> {
    let none: *const c_void = std::ptr::null();
    check(unsafe { syscall(SYS_PIDFD_SEND_SIGNAL, process.as_raw_fd(), signal, none, 0) } as c_int).map(|_| ())
}

fn file(result: c_long) -> io::Result<File> {
    let fd = check(result as c_int)?;
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn port_of(socket: &File) -> io::Result<Option<u16>> {
    let mut listens: c_int = 0;
    let mut length = std::mem::size_of::<c_int>() as u32;
    let value = &mut listens as *mut c_int as *mut c_void;
    check(unsafe { getsockopt(socket.as_raw_fd(), SOL_SOCKET, SO_ACCEPTCONN, value, &mut length) })?;
    if listens == 0 {
        return Ok(None);
    }
    // Family and port have their places in both kinds of addresses; a longer one is cut.
    let mut address = [0u8; 28];
    let mut length = address.len() as u32;
    check(unsafe { getsockname(socket.as_raw_fd(), address.as_mut_ptr() as *mut c_void, &mut length) })?;
    let family = u16::from_ne_bytes([address[0], address[1]]);
    let port = u16::from_be_bytes([address[2], address[3]]);
    Ok(Some(port).filter(|_| family == AF_INET || family == AF_INET6))
}
