//! Connections to ports of a sandbox's loopback. They are made in its network namespace and handed to the server: the kernel then
//! carries their bytes without a process in between. A TCP socket carries no descriptors, and its reader waits for nothing of its peer.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::network::open_namespace;
use crate::protocol::fields::Process;
use sys::{ECONNREFUSED, ESRCH, ETIMEDOUT};

/// For each address. A listener whose queue is full does not answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to a port in the network namespace of a process, which this thread enters. The socket does not block.
pub fn connect(process: Process, port: u16) -> io::Result<TcpStream> {
    let namespace = open_namespace(process, "net").map_err(|_| io::Error::from_raw_os_error(ESRCH))?;
    sys::enter_network(&namespace).map_err(|_| io::Error::last_os_error())?;
    let addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))];
    let mut failure = ECONNREFUSED;
    for address in addresses {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            // Without a listener, a connection from an ephemeral port to itself succeeds (RFC 9293, simultaneous open).
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {}
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => failure = ETIMEDOUT,
            Err(_) => {}
        }
    }
    Err(io::Error::from_raw_os_error(failure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::start_tick;
    use std::net::TcpListener;

    fn own() -> Process {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        Process { pid: std::process::id(), start: start_tick(&stat).unwrap() }
    }

    #[test]
    fn a_listener_on_either_loopback_is_reached_and_no_other() {
        let own = own();
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(host).unwrap();
            let address = listener.local_addr().unwrap();
            let stream = connect(own, address.port()).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), address);
            drop(listener);
            let refused = connect(own, address.port()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        }
        assert!(connect(Process { start: own.start + 1, ..own }, 80).is_err());
    }
}
