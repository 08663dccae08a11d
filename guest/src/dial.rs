//! Ports of the sandbox: which are listened on, and connections to them.

use crate::protocol::fault::{Fault, Outcome};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::io::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use sys::{PollFd, POLLERR, POLLHUP, POLLIN, POLLOUT};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const BUFFER_BYTES: usize = 64 * 1024;
const ADDRESSES_MAX: usize = 16;
const TABLE_BYTES_MAX: u64 = 16 << 20;
const STATE_LISTEN: &str = "0A";

/// A listening socket, and the inode by which its holders are found.
pub struct Listener {
    pub address: SocketAddr,
    pub inode: u64,
}

pub fn ports() -> Vec<u16> {
    listeners()
        .into_iter()
        .map(|listener| listener.address.port())
        .filter(|&port| port > 0)
        .collect::<BTreeSet<u16>>()
        .into_iter()
        .collect()
}

/// Connects to a listener on a port: loopback first, then the addresses to which listeners are bound.
pub fn connect(port: u16) -> Outcome<TcpStream> {
    let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    // The table of listeners is read only when it is needed.
    let bound = std::iter::once_with(listeners).flatten().filter(|listener| listener.address.port() == port);
    let others =
        bound.map(|listener| listener.address.ip()).filter(|ip| !ip.is_unspecified() && !loopback.contains(ip));
    for address in loopback.into_iter().chain(others).take(ADDRESSES_MAX) {
        if let Ok(stream) = TcpStream::connect_timeout(&SocketAddr::new(address, port), CONNECT_TIMEOUT) {
            // Without a listener, a connection from an ephemeral port to itself succeeds (RFC 9293, simultaneous open).
            if stream.local_addr().ok() != stream.peer_addr().ok() {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
        }
    }
    Err(Fault { code: "nothing_listening", message: format!("nothing listens on port {}", port) })
}

pub fn listeners() -> Vec<Listener> {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().flat_map(|path| parse_listeners(&read_text(path))).collect()
}

fn read_text(path: &str) -> String {
    let mut text = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(TABLE_BYTES_MAX).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Lines of `/proc/net/tcp` (proc(5)): the second field is `address:port` in hex, the fourth the state, the tenth
/// the inode. An address is written as 32-bit words in the machine's byte order.
fn parse_listeners(table: &str) -> Vec<Listener> {
    let parse = |line: &str| {
        let mut fields = line.split_whitespace();
        let (address, port) = fields.nth(1)?.split_once(':')?;
        if fields.nth(1)? != STATE_LISTEN || !address.is_ascii() {
            return None;
        }
        let mut bytes = Vec::new();
        for at in (0..address.len()).step_by(8) {
            bytes.extend_from_slice(&u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
        }
        let ip = match bytes.len() {
            4 => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
            16 => {
                let mut octets = [0; 16];
                octets.copy_from_slice(&bytes);
                IpAddr::from(octets)
            }
            _ => return None,
        };
        let address = SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?);
        Some(Listener { address, inode: fields.nth(5)?.parse().ok()? })
    };
    table.lines().filter_map(parse).collect()
}

/// Moves bytes both ways until both sides have ended. The end of one side is passed on and leaves the other direction
/// open; a client that is gone altogether ends everything. A server that takes no more may have answered before: what it
/// has sent still arrives, and the rest for it is discarded.
pub fn relay(client: &UnixStream, server: &TcpStream, early: &[u8]) -> Outcome<()> {
    sys::set_nonblocking(client)?;
    sys::set_nonblocking(server)?;
    let mut up = Flow { buffer: early.to_vec(), sent: 0, source_ended: false, closed: false };
    let mut down = Flow { buffer: Vec::new(), sent: 0, source_ended: false, closed: false };
    loop {
        up.pass_end(|| server.shutdown(Shutdown::Write));
        down.pass_end(|| client.shutdown(Shutdown::Write));
        if up.closed && down.closed {
            return Ok(());
        }
        let mut fds =
            [PollFd::new(client, up.wants() | down.offers()), PollFd::unless_idle(server, down.wants() | up.offers())];
        sys::poll(&mut fds, None);
        let gone = |fd: &PollFd| fd.ready(POLLERR) || (fd.ready(POLLHUP) && !fd.ready(POLLIN));
        let up_alive = up.step(client, server, &fds[0], &fds[1]) || up.discard(down.source_ended);
        let down_alive = down.step(server, client, &fds[1], &fds[0]);
        // `gone`: both directions have hung up, and nothing is left to read.
        if !up_alive || !down_alive || gone(&fds[0]) || (gone(&fds[1]) && down.source_ended && down.buffer.is_empty()) {
            return Ok(());
        }
    }
}

struct Flow {
    buffer: Vec<u8>,
    sent: usize,
    source_ended: bool,
    closed: bool,
}

impl Flow {
    fn wants(&self) -> i16 {
        if self.buffer.is_empty() && !self.source_ended {
            POLLIN
        } else {
            0
        }
    }

    fn offers(&self) -> i16 {
        if self.buffer.is_empty() {
            0
        } else {
            POLLOUT
        }
    }

    fn pass_end(&mut self, shutdown: impl FnOnce() -> std::io::Result<()>) {
        if self.source_ended && self.buffer.is_empty() && !self.closed {
            self.closed = true;
            let _ = shutdown();
        }
    }

    /// Drops bytes that cannot be written; false when there is nothing left to wait for.
    fn discard(&mut self, is_over: bool) -> bool {
        self.buffer.clear();
        self.sent = 0;
        !is_over
    }

    /// Reads when empty and ready, writes the pending bytes; false when a side failed.
    fn step<S, T>(&mut self, source: &S, target: &T, source_fd: &PollFd, target_fd: &PollFd) -> bool
    where
        for<'a> &'a S: Read,
        for<'a> &'a T: Write,
        S: AsRawFd,
        T: AsRawFd,
    {
        if self.wants() != 0 && source_fd.ready(POLLIN | POLLHUP) {
            self.buffer.resize(BUFFER_BYTES, 0);
            let (mut reader, buffer) = (source, &mut self.buffer);
            match Read::read(&mut reader, buffer) {
                Ok(0) => {
                    buffer.clear();
                    self.source_ended = true;
                }
                Ok(count) => buffer.truncate(count),
                Err(error) if retry(&error) => buffer.clear(),
                Err(_) => return false,
            }
        } else if !target_fd.ready(POLLOUT | POLLERR) {
            return true;
        }
        if !self.buffer.is_empty() {
            let mut writer = target;
            match Write::write(&mut writer, &self.buffer[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if retry(&error) => {}
                Err(_) => return false,
            }
            if self.sent == self.buffer.len() {
                self.buffer.clear();
                self.sent = 0;
            }
        }
        true
    }
}

fn retry(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn listeners_are_found_in_both_tables() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0\n\
             1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0\n\
             2: 0000000000000000FFFF00000100007F:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 13 1\n\
             3: 00000000000000000000000001000000:0BB8 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 14\n";
        let listeners = parse_listeners(table);
        let found: Vec<String> = listeners.iter().map(|it| format!("{} {}", it.address, it.inode)).collect();
        assert_eq!(found, ["127.0.0.1:8080 11", "[::ffff:127.0.0.1]:80 13", "[::1]:3000 14"]);
    }

    #[test]
    fn the_answer_of_a_server_that_closes_without_reading_arrives() {
        for _ in 0..50 {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let server = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (inside, _) = listener.accept().unwrap();
            let (mut client, ours) = UnixStream::pair().unwrap();
            let relaying = std::thread::spawn(move || relay(&ours, &server, b""));
            client.write_all(b"POST").unwrap();
            let mut head = [0; 4];
            (&inside).read_exact(&mut head).unwrap();
            let sending = client.try_clone().unwrap();
            let sender = std::thread::spawn(move || {
                let mut left = &sending;
                while left.write_all(&[0; 4096]).is_ok() {}
            });
            // Unread bytes wait, so that the close resets the connection.
            let mut byte = [0; 1];
            (&inside).read_exact(&mut byte).unwrap();
            (&inside).write_all(b"413 too large").unwrap();
            drop(inside);
            let mut answer = Vec::new();
            // Client bytes that the relay has not read turn the close into a reset, behind the answer.
            if let Err(error) = client.read_to_end(&mut answer) {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            }
            assert_eq!(answer, b"413 too large");
            assert!(relaying.join().unwrap().is_ok());
            drop(client);
            sender.join().unwrap();
        }
    }

    #[test]
    fn nonsense_in_the_table_is_skipped() {
        for line in [
            "",
            "x",
            "0: 0100007F 0 0A",
            "0: zz:zz 0 0A",
            "0: 01:50 0 0A",
            "0: 0100007F:50 0 0A",
            "0: 0100007F:50 0 0A 0 0 0 0 0 x",
            "0: 0100007Fé:50 0 0A 0 0 0 0 0 1",
            "0: 0100007F:FFFFF 0 0A 0 0 0 0 0 1",
        ] {
            assert!(parse_listeners(line).is_empty(), "{}", line);
        }
    }
}
