//! Operations of unix sockets that std lacks.

use crate::libc::{self, c_int, UnixAddress, AF_UNIX, O_CLOEXEC, O_NONBLOCK, UNIX_PATH_BYTES};
use crate::{done, owned};
use std::io;
use std::mem::{size_of, size_of_val};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

const SO_PASSRIGHTS: c_int = 83;

/// A listening socket at `path`, for its owner alone. Replaces a left-over socket, whose listener has gone. To be called while there is one
/// thread, because it changes the umask.
pub fn bind_private(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let before = crate::umask(0o177);
    let bound = UnixListener::bind(path);
    crate::umask(before);
    bound
}

/// Connects without waiting; EAGAIN where the listener's queue is full. The stream is non-blocking. Since Linux 6.16 the kernel refuses
/// descriptors that the other side sends.
pub fn connect_without_rights(path: &Path) -> io::Result<UnixStream> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= UNIX_PATH_BYTES || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut address = UnixAddress { family: AF_UNIX as u16, path: [0; UNIX_PATH_BYTES] };
    address.path[..bytes.len()].copy_from_slice(bytes);
    // SAFETY: the call has no pointers, and its result is a new descriptor.
    let socket = unsafe { owned(libc::socket(AF_UNIX, libc::SOCK_STREAM | O_NONBLOCK | O_CLOEXEC, 0).into()) }?;
    let stream = UnixStream::from(socket);
    // Unknown before Linux 6.16.
    let _ = set_option(&stream, SO_PASSRIGHTS, &[0]);
    // SAFETY: the address has the given size and lives as long as this call.
    done(unsafe { libc::connect(stream.as_raw_fd(), &address, size_of::<UnixAddress>() as u32) })?;
    Ok(stream)
}

/// An option of socket(7), whose value is a structure of ints.
pub fn set_option(socket: &impl AsRawFd, name: c_int, value: &[c_int]) -> io::Result<()> {
    let length = size_of_val(value) as u32;
    // SAFETY: the kernel reads as many bytes as the slice has.
    done(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value.as_ptr().cast(), length) })
}
