//! Pseudo terminals.

use super::{check, O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_RDWR};
use std::fs::File;
use std::io;
use std::os::raw::{c_char, c_int, c_ulong};
use std::os::unix::io::{AsRawFd, FromRawFd};

const TIOCSWINSZ: c_ulong = 0x5414;
const TIOCSPTLCK: c_ulong = 0x4004_5431;
const TIOCGPTPEER: c_ulong = 0x5441;

#[repr(C)]
struct WindowSize {
    rows: u16,
    cols: u16,
    x: u16,
    y: u16,
}

extern "C" {
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
}

/// A new pseudo terminal: the master (non-blocking) and the slave.
pub fn open_terminal(cols: u16, rows: u16) -> io::Result<(File, File)> {
    let path = b"/dev/ptmx\0".as_ptr() as *const c_char;
    let master = check(unsafe { open(path, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK) })?;
    let master = unsafe { File::from_raw_fd(master) };
    let unlock: c_int = 0;
    check(unsafe { ioctl(master.as_raw_fd(), TIOCSPTLCK, &unlock as *const c_int) })?;
    let slave = check(unsafe { ioctl(master.as_raw_fd(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC) })?;
    let slave = unsafe { File::from_raw_fd(slave) };
    resize_terminal(&master, cols, rows)?;
    Ok((master, slave))
}

pub fn resize_terminal(master: &impl AsRawFd, cols: u16, rows: u16) -> io::Result<()> {
    let size = WindowSize { rows, cols, x: 0, y: 0 };
    check(unsafe { ioctl(master.as_raw_fd(), TIOCSWINSZ, &size as *const WindowSize) }).map(|_| ())
}
