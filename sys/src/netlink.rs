//! The network interfaces of a namespace by rtnetlink(7). Numbers and structures are those of `linux/rtnetlink.h`, `if_link.h`,
//! `if_addr.h` and `neighbour.h`.

use crate::libc::{self, c_int};
use crate::owned;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::RawFd;

const AF_INET: u8 = 2;
const AF_INET6: u16 = 10;
const AF_NETLINK: c_int = 16;

const REQUEST: u16 = 1;
const ACK: u16 = 4;
const REPLACE: u16 = 0x100;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const ERROR: u16 = 2;
const HEADER_BYTES: usize = 16;

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;
const NEW_NEIGHBOUR: u16 = 28;

const UP: u32 = 1;
const NO_ARP: u32 = 0x80;
const PERMANENT: u16 = 0x80;
const SCOPE_LINK: u8 = 253;
const SCOPE_UNIVERSE: u8 = 0;
const TABLE_MAIN: u8 = 254;
const PROTOCOL_BOOT: u8 = 3;
const UNICAST: u8 = 1;
const ADDRESS_GENERATION_NONE: u8 = 1;

pub type Mac = [u8; 6];

/// A socket of the network namespace in which the calling thread is.
pub struct Netlink {
    socket: File,
    sequence: u32,
}

impl Netlink {
    pub fn open() -> io::Result<Netlink> {
        // SAFETY: the call has no pointers, and its result is a new descriptor.
        let socket = unsafe { owned(libc::socket(AF_NETLINK, libc::SOCK_RAW | libc::O_CLOEXEC, 0).into()) }?;
        Ok(Netlink { socket: File::from(socket), sequence: 0 })
    }

    /// A pair of links: `name` here, `peer` in the namespace. `AlreadyExists` where one of them is there.
    pub fn make_pair(&mut self, name: &str, mac: Mac, peer: &str, peer_mac: Mac, namespace: RawFd) -> io::Result<()> {
        let mut message = Message::new(NEW_LINK, CREATE | EXCLUSIVE);
        message.link(0, 0, 0);
        message.text(attribute::LINK_NAME, name);
        message.bytes(attribute::LINK_ADDRESS, &mac);
        message.nested(attribute::LINK_INFO, |info| {
            info.text(attribute::INFO_KIND, "veth");
            info.nested(attribute::INFO_DATA, |data| {
                data.nested(attribute::VETH_PEER, |end| {
                    end.link(0, 0, 0);
                    end.text(attribute::LINK_NAME, peer);
                    end.bytes(attribute::LINK_ADDRESS, &peer_mac);
                    end.bytes(attribute::LINK_NAMESPACE, &(namespace as u32).to_ne_bytes());
                });
            });
        });
        self.ask(message)
    }

    pub fn up(&mut self, index: u32) -> io::Result<()> {
        let mut message = Message::new(NEW_LINK, 0);
        message.link(index, UP, UP);
        self.ask(message)
    }

    /// Sets a link up, without ARP and without an address that the kernel makes.
    pub fn up_silent(&mut self, index: u32) -> io::Result<()> {
        let mut message = Message::new(NEW_LINK, 0);
        message.link(index, UP | NO_ARP, UP | NO_ARP);
        message.nested(attribute::LINK_FAMILIES, |families| {
            families.nested(AF_INET6, |ipv6| ipv6.bytes(attribute::ADDRESS_GENERATION, &[ADDRESS_GENERATION_NONE]));
        });
        self.ask(message)
    }

    pub fn delete_link(&mut self, index: u32) -> io::Result<()> {
        let mut message = Message::new(DELETE_LINK, 0);
        message.link(index, 0, 0);
        self.ask(message)
    }

    pub fn put_address(&mut self, index: u32, address: Ipv4Addr) -> io::Result<()> {
        self.ask(Message::of_address(NEW_ADDRESS, CREATE | REPLACE, index, address))
    }

    /// `AddrNotAvailable` where there is none.
    pub fn delete_address(&mut self, index: u32, address: Ipv4Addr) -> io::Result<()> {
        self.ask(Message::of_address(DELETE_ADDRESS, 0, index, address))
    }

    /// A route to one address on the link itself, with the address that packets of this host get.
    pub fn put_route(&mut self, index: u32, to: Ipv4Addr, source: Option<Ipv4Addr>) -> io::Result<()> {
        let mut message = Message::of_route(32, SCOPE_LINK);
        message.bytes(attribute::ROUTE_TO, &to.octets());
        message.bytes(attribute::ROUTE_LINK, &index.to_ne_bytes());
        if let Some(source) = source {
            message.bytes(attribute::ROUTE_SOURCE, &source.octets());
        }
        self.ask(message)
    }

    pub fn put_default_route(&mut self, gateway: Ipv4Addr) -> io::Result<()> {
        let mut message = Message::of_route(0, SCOPE_UNIVERSE);
        message.bytes(attribute::ROUTE_GATEWAY, &gateway.octets());
        self.ask(message)
    }

    pub fn put_neighbour(&mut self, index: u32, address: Ipv4Addr, mac: Mac) -> io::Result<()> {
        let mut message = Message::new(NEW_NEIGHBOUR, CREATE | REPLACE);
        message.push(&[AF_INET, 0, 0, 0]);
        message.push(&index.to_ne_bytes());
        message.push(&PERMANENT.to_ne_bytes());
        message.push(&[0, 0]);
        message.bytes(attribute::NEIGHBOUR_ADDRESS, &address.octets());
        message.bytes(attribute::NEIGHBOUR_MAC, &mac);
        self.ask(message)
    }

    /// Sends one request and waits for its answer, which the kernel has ready.
    fn ask(&mut self, message: Message) -> io::Result<()> {
        self.sequence += 1;
        let bytes = message.finish(self.sequence);
        // A datagram: one write is one request, one read is one answer.
        let _sent = self.socket.write(&bytes)?;
        let mut answer = [0u8; 8192];
        let length = self.socket.read(&mut answer)?;
        match outcome(&answer[..length]) {
            Some(0) => Ok(()),
            Some(number) => Err(io::Error::from_raw_os_error(number)),
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is no acknowledgement")),
        }
    }
}

/// The index of a link in the namespace of the calling thread.
pub fn index_of(name: &str) -> io::Result<u32> {
    let name = CString::new(OsStr::new(name).as_bytes())?;
    // SAFETY: the name ends with NUL and lives as long as this call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// The error number of an acknowledgement, 0 for success.
fn outcome(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(HEADER_BYTES..HEADER_BYTES + 4)?.try_into().ok()?);
    (kind == ERROR).then_some(-code)
}

mod attribute {
    pub const LINK_ADDRESS: u16 = 1;
    pub const LINK_NAME: u16 = 3;
    pub const LINK_INFO: u16 = 18;
    pub const LINK_FAMILIES: u16 = 26;
    pub const LINK_NAMESPACE: u16 = 28;
    pub const INFO_KIND: u16 = 1;
    pub const INFO_DATA: u16 = 2;
    pub const VETH_PEER: u16 = 1;
    pub const ADDRESS_GENERATION: u16 = 8;
    pub const ADDRESS: u16 = 1;
    pub const ADDRESS_LOCAL: u16 = 2;
    pub const ROUTE_TO: u16 = 1;
    pub const ROUTE_LINK: u16 = 4;
    pub const ROUTE_GATEWAY: u16 = 5;
    pub const ROUTE_SOURCE: u16 = 7;
    pub const NEIGHBOUR_ADDRESS: u16 = 1;
    pub const NEIGHBOUR_MAC: u16 = 2;
}

/// One request: a header, a structure of its type, and attributes (a length, a type and a value, padded to four bytes).
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: u16) -> Message {
        let mut message = Message(vec![0; HEADER_BYTES]);
        message.0[4..6].copy_from_slice(&kind.to_ne_bytes());
        message.0[6..8].copy_from_slice(&(REQUEST | ACK | flags).to_ne_bytes());
        message
    }

    fn of_address(kind: u16, flags: u16, index: u32, address: Ipv4Addr) -> Message {
        let mut message = Message::new(kind, flags);
        message.push(&[AF_INET, 32, 0, SCOPE_UNIVERSE]);
        message.push(&index.to_ne_bytes());
        message.bytes(attribute::ADDRESS_LOCAL, &address.octets());
        message.bytes(attribute::ADDRESS, &address.octets());
        message
    }

    fn of_route(prefix: u8, scope: u8) -> Message {
        let mut message = Message::new(NEW_ROUTE, CREATE | REPLACE);
        message.push(&[AF_INET, prefix, 0, 0, TABLE_MAIN, PROTOCOL_BOOT, scope, UNICAST]);
        message.push(&[0; 4]);
        message
    }

    /// `struct ifinfomsg`.
    fn link(&mut self, index: u32, flags: u32, change: u32) {
        self.push(&[0; 4]);
        for field in [index, flags, change] {
            self.push(&field.to_ne_bytes());
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |message| message.push(value));
    }

    fn text(&mut self, kind: u16, value: &str) {
        self.nested(kind, |message| {
            message.push(value.as_bytes());
            message.push(&[0]);
        });
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Message)) {
        let start = self.0.len();
        self.push(&[0; 2]);
        self.push(&kind.to_ne_bytes());
        fill(self);
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0.resize((self.0.len() + 3) & !3, 0);
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_count_what_they_hold() {
        let mut message = Message::new(NEW_LINK, 0);
        message.nested(attribute::LINK_INFO, |info| info.text(attribute::INFO_KIND, "veth"));
        let bytes = message.finish(7);
        assert_eq!(bytes.len(), HEADER_BYTES + 4 + 12);
        assert_eq!(bytes[..4], (bytes.len() as u32).to_ne_bytes());
        assert_eq!(bytes[HEADER_BYTES..HEADER_BYTES + 2], 16u16.to_ne_bytes());
        assert_eq!(bytes[HEADER_BYTES + 4..HEADER_BYTES + 6], 9u16.to_ne_bytes());
    }

    #[test]
    fn an_answer_is_an_error_number_or_nonsense() {
        let mut answer = vec![0; 20];
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        answer[16..20].copy_from_slice(&(-17i32).to_ne_bytes());
        assert_eq!(outcome(&answer), Some(17));
        assert_eq!(outcome(&answer[..18]), None);
        answer[4] = 9;
        assert_eq!(outcome(&answer), None);
    }

    #[test]
    fn the_loopback_is_found_and_its_state_can_be_set_again() {
        let index = index_of("lo").expect("each namespace has one");
        assert!(Netlink::open().and_then(|mut netlink| netlink.up(index)).is_ok());
        assert!(index_of("no-such-link").is_err());
        let nowhere = Netlink::open().and_then(|mut netlink| netlink.up(u32::MAX / 2));
        assert_eq!(nowhere.err().and_then(|error| error.raw_os_error()), Some(19));
    }
}
