//! Where a connection was going before the packet rules translated it.

use std::io;
use std::mem::{size_of, MaybeUninit};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use tokio::net::TcpStream;

/// The original destination (`SO_ORIGINAL_DST`); the local address where nothing translated it.
pub fn original(stream: &TcpStream) -> io::Result<SocketAddr> {
    match translated(stream) {
        Ok(address) => Ok(address),
        Err(_) => stream.local_addr(),
    }
}

fn translated(stream: &TcpStream) -> io::Result<SocketAddr> {
    let mut address = MaybeUninit::<libc::sockaddr_in>::zeroed();
    let mut length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: the pointers are to an address and its length, which outlive the call.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_IP,
            libc::SO_ORIGINAL_DST,
            address.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all bit patterns are addresses, and it began as zeros.
    let address = unsafe { address.assume_init() };
    if address.sin_family != libc::AF_INET as libc::sa_family_t {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
    Ok(SocketAddr::new(ip.into(), u16::from_be(address.sin_port)))
}
