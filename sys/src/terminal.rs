//! Pseudo terminals.

use crate::libc::{self, c_int, c_ulong, O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_RDWR};
use crate::{check, owned};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::io::AsRawFd;

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

/// A new pseudo terminal: the master (non-blocking) and the slave.
pub fn open_terminal(cols: u16, rows: u16) -> io::Result<(File, File)> {
    let flags = O_NOCTTY | O_NONBLOCK;
    let master = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/ptmx")?;
    let unlock: c_int = 0;
    // SAFETY: the kernel reads an int.
    check(unsafe { libc::ioctl(master.as_raw_fd(), TIOCSPTLCK, &unlock as *const c_int) })?;
    // SAFETY: of this request the argument is a number, and its result is a new descriptor.
    let slave = unsafe { owned(libc::ioctl(master.as_raw_fd(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC).into()) }?;
    let slave = File::from(slave);
    resize_terminal(&master, cols, rows)?;
    Ok((master, slave))
}

pub fn resize_terminal(master: &impl AsRawFd, cols: u16, rows: u16) -> io::Result<()> {
    let size = WindowSize { rows, cols, x: 0, y: 0 };
    // SAFETY: the kernel reads a `struct winsize`.
    check(unsafe { libc::ioctl(master.as_raw_fd(), TIOCSWINSZ, &size as *const WindowSize) }).map(drop)
}
