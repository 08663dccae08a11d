//! Operations of unix sockets that std lacks.

use std::io;
use std::mem::size_of;
use std::os::raw::{c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::{AsRawFd, FromRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use super::Error;

extern "C" {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn connect(fd: c_int, address: *const Address, length: u32) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: u32) -> c_int;
    fn umask(mask: u32) -> u32;
}

const AF_UNIX: c_int = 1;
const SOCK_STREAM: c_int = 1;
const SOCK_NONBLOCK: c_int = 0o4000;
const SOCK_CLOEXEC: c_int = 0o2000000;
const SOL_SOCKET: c_int = 1;
const SO_PASSRIGHTS: c_int = 83;
const PATH_SPACE: usize = 108;

#[repr(C)]
struct Address {
    family: u16,
    path: [u8; PATH_SPACE],
}

/// A listening socket at `path`, for its owner alone. One that is there already is left over: its listener has gone. To be
/// called while there is one thread.
pub fn bind_private(path: &Path) -> Result<UnixListener, Error> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("remove", path.display(), error))
        }
        _ => {}
    }
    let before = unsafe { umask(0o177) };
    let bound = UnixListener::bind(path);
    unsafe { umask(before) };
    bound.map_err(|error| Error::io("bind", path.display(), error))
}

/// Connects without waiting; EAGAIN where the listener's queue is full. The stream does not block. Where the kernel knows how
/// to, it refuses descriptors that the other side sends.
pub fn connect_without_rights(path: &Path) -> io::Result<UnixStream> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= PATH_SPACE || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut address = Address { family: AF_UNIX as u16, path: [0; PATH_SPACE] };
    address.path[..bytes.len()].copy_from_slice(bytes);
    let fd = unsafe { socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let stream = unsafe { UnixStream::from_raw_fd(fd) };
    let off: c_int = 0;
    unsafe {
        // Unknown before Linux 6.16.
        setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, (&off as *const c_int).cast(), size_of::<c_int>() as u32);
    }
    super::done(unsafe { connect(stream.as_raw_fd(), &address, size_of::<Address>() as u32) })?;
    Ok(stream)
}
