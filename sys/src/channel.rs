//! The channel on which the server takes sockets over: the one that its `child_process` opens as `ipc`. Both sides write lines of JSON.
//! A socket travels with the line that names it.

use crate::libc::{self, c_int, Message, Part, Rights};
use std::io;
use std::mem::size_of;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

/// Names the descriptor of the channel.
const VARIABLE: &str = "NODE_CHANNEL_FD";
const FORMAT_VARIABLE: &str = "NODE_CHANNEL_SERIALIZATION_MODE";
const SCM_RIGHTS: c_int = 1;
const MSG_DONTWAIT: c_int = 0x40;
const MSG_NOSIGNAL: c_int = 0x4000;

pub struct Channel(Mutex<OwnedFd>);

impl Channel {
    /// Takes the channel out of the environment, so that no started program has it. To be called while there is one thread.
    pub fn take() -> Option<Channel> {
        let named = std::env::var(VARIABLE).ok();
        std::env::remove_var(VARIABLE);
        std::env::remove_var(FORMAT_VARIABLE);
        let fd: RawFd = named?.parse().ok()?;
        crate::set_close_on_exec(fd).ok()?;
        // SAFETY: the descriptor is open, and nothing else in this process knows it.
        Some(Channel::new(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn new(fd: OwnedFd) -> Channel {
        Channel(Mutex::new(fd))
    }

    /// Hands a TCP socket to the server as the answer to this request. The socket must be non-blocking.
    pub fn send(&self, id: u32, socket: &impl AsRawFd) -> io::Result<()> {
        let line = format!("{{\"cmd\":\"NODE_HANDLE\",\"type\":\"net.Socket\",\"msg\":{{\"id\":{id}}}}}\n");
        let channel = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        drop_acknowledgements(channel.as_raw_fd());
        send_with_socket(channel.as_raw_fd(), line.as_bytes(), socket)
    }
}

/// Sends bytes with one descriptor (cmsg(3)) over a unix socket.
pub fn send_with_socket(channel: RawFd, bytes: &[u8], socket: &impl AsRawFd) -> io::Result<()> {
    let part = Part { start: bytes.as_ptr().cast(), length: bytes.len() };
    let length = size_of::<Rights>() - size_of::<c_int>();
    let rights = Rights { length, level: libc::SOL_SOCKET, kind: SCM_RIGHTS, fd: socket.as_raw_fd(), padding: 0 };
    let message = Message {
        name: std::ptr::null(),
        name_length: 0,
        parts: &part,
        part_count: 1,
        control: &rights,
        control_length: size_of::<Rights>(),
        flags: 0,
    };
    // SAFETY: the message points to a part and a control message that live as long as this call, with their lengths.
    match unsafe { libc::sendmsg(channel, &message, MSG_NOSIGNAL) } {
        sent if sent == bytes.len() as isize => Ok(()),
        sent if sent < 0 => Err(io::Error::last_os_error()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// The server acknowledges each socket. Unread acknowledgements would fill the channel.
fn drop_acknowledgements(channel: RawFd) {
    let mut buffer = [0u8; 4096];
    // SAFETY: the kernel writes at most as many bytes as the buffer has.
    while unsafe { libc::recv(channel, buffer.as_mut_ptr().cast(), buffer.len(), MSG_DONTWAIT) } > 0 {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_comes_with_its_line_and_acknowledgements_do_not_pile_up() {
        let (own, mut server) = UnixStream::pair().unwrap();
        let channel = Channel::new(own.into());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for id in 1..=3 {
            server.write_all(b"{\"cmd\":\"NODE_HANDLE_ACK\"}\n").unwrap();
            channel.send(id, &listener).unwrap();
            let mut line = [0; 128];
            let length = server.read(&mut line).unwrap();
            let expected = format!("{{\"cmd\":\"NODE_HANDLE\",\"type\":\"net.Socket\",\"msg\":{{\"id\":{id}}}}}\n");
            assert_eq!(std::str::from_utf8(&line[..length]).unwrap(), expected);
        }
        let fd = channel.0.lock().unwrap().as_raw_fd();
        let mut byte = 0u8;
        // SAFETY: the kernel writes at most one byte.
        assert!(unsafe { libc::recv(fd, (&mut byte as *mut u8).cast(), 1, MSG_DONTWAIT) } < 0);
    }
}
