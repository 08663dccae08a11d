//! Configures the network of a sandbox, which its first process identifies. Another process can have the same number after that one's end,
//! so the namespace is opened first, the process is checked next, and from there on only the descriptor is used.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::io::AsRawFd;
use std::process::{Command, Stdio};

use crate::protocol::fields::{refused, Fields, Process};
use sys::netlink::{index_of, Mac, Netlink};
use sys::Error;

const LOOPBACK: &str = "lo";
/// The name of the link inside.
const INSIDE: &str = "eth0";

/// The link of a sandbox: its end on the host routes to the sandbox alone, its end inside to the gateway alone. Neither uses ARP: both
/// know each other by permanent entries.
#[derive(Debug)]
pub struct Join {
    process: Process,
    link: String,
    address: Ipv4Addr,
    mac: Mac,
    gateway: Ipv4Addr,
    gateway_mac: Mac,
    held: Option<Held>,
}

/// The address of restored connections, which the loopback has until here.
#[derive(Debug)]
struct Held {
    address: Ipv4Addr,
    /// Whether the connections to the outside are closed.
    closes: bool,
}

impl Join {
    pub fn from_fields(fields: &mut Fields) -> Result<Join, Error> {
        let held = fields.has("held").then(|| Held::from_fields(fields.object("held")?)).transpose()?;
        Ok(Join {
            process: fields.process()?,
            link: fields.text("link")?,
            address: fields.parsed("address")?,
            mac: mac(&fields.text("mac")?)?,
            gateway: fields.parsed("gateway")?,
            gateway_mac: mac(&fields.text("gatewayMac")?)?,
            held,
        })
    }
}

impl Held {
    fn from_fields(mut fields: Fields) -> Result<Held, Error> {
        let held = Held { address: fields.parsed("address")?, closes: fields.flag("close")? };
        fields.finish().map(|()| held)
    }
}

/// Makes what is missing of the link, whatever its state, so a join can be repeated after a crash.
pub fn join(request: &Join) -> Result<(), Error> {
    let namespace = open_namespace(request.process, "net")?;
    join_host(request, &namespace).map_err(|error| Error::io("join", &request.link, error))?;
    sys::enter_network(&namespace)?;
    if let Some(held) = request.held.as_ref().filter(|held| held.closes) {
        close_connections(held.address)?;
    }
    join_sandbox(request).map_err(|error| Error::io("join the inside of", &request.link, error))
}

/// Deletes a link, if there is one.
pub fn delete(link: &str) -> Result<(), Error> {
    let index = match index_of(link) {
        Ok(index) => index,
        Err(_) => return Ok(()),
    };
    match Netlink::open().and_then(|mut netlink| netlink.delete_link(index)) {
        // A link goes by itself with the namespace at its other end.
        Err(_) if index_of(link).is_err() => Ok(()),
        done => done.map_err(|error| Error::io("delete link", link, error)),
    }
}

fn join_host(request: &Join, namespace: &File) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    let Join { link, address, mac, gateway, gateway_mac, .. } = request;
    match netlink.make_pair(link, *gateway_mac, INSIDE, *mac, namespace.as_raw_fd()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let index = index_of(link)?;
    netlink.up_silent(index)?;
    // Without a source the host would send its errors from any of its addresses.
    netlink.put_route(index, *address, Some(*gateway))?;
    netlink.put_neighbour(index, *address, *mac)
}

fn join_sandbox(request: &Join) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    let loopback = index_of(LOOPBACK)?;
    if let Some(held) = &request.held {
        match netlink.delete_address(loopback, held.address) {
            Err(error) if error.kind() != io::ErrorKind::AddrNotAvailable => return Err(error),
            _ => {}
        }
    }
    netlink.up(loopback)?;
    let index = index_of(INSIDE)?;
    netlink.put_address(index, request.address)?;
    netlink.up(index)?;
    // Only the gateway is on the link: requests for other addresses must not fill the neighbour table.
    netlink.put_route(index, request.gateway, None)?;
    netlink.put_default_route(request.gateway)?;
    netlink.put_neighbour(index, request.gateway, request.gateway_mac)
}

/// Ends the connections from an address; what only listens stays. To be called while the link inside is down.
fn close_connections(address: Ipv4Addr) -> Result<(), Error> {
    if !has_connections(address)? {
        return Ok(());
    }
    let address = address.to_string();
    let words = ["--kill", "--no-header", "--tcp", "--udp", "src", &address];
    let status = Command::new("ss").args(words).stdin(Stdio::null()).stdout(Stdio::null()).status();
    match status.map_err(|error| Error::io("start", "ss", error))? {
        status if status.success() => Ok(()),
        status => Err(Error::new(format!("ss: {status}"))),
    }
}

/// Whether sockets in this thread's namespace have this local address. Few restored sandboxes have any, and this look costs less than a
/// start of `ss`.
fn has_connections(address: Ipv4Addr) -> Result<bool, Error> {
    // The kernel writes an address as a hexadecimal word in the machine's byte order, in the tables of IPv6 behind a prefix.
    let wanted = format!("{:08X}", u32::from_ne_bytes(address.octets()));
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let path = format!("/proc/thread-self/net/{table}");
        match std::fs::read_to_string(&path) {
            Ok(text) if text.lines().skip(1).any(|line| is_from(line, &wanted)) => return Ok(true),
            // Without IPv6 the host has no such table.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io("read", path, error)),
            _ => {}
        }
    }
    Ok(false)
}

fn is_from(line: &str, wanted: &str) -> bool {
    let local = line.split_whitespace().nth(1).and_then(|field| field.split(':').next());
    local.map_or(false, |address| address.ends_with(wanted))
}

fn mac(text: &str) -> Result<Mac, Error> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
    let bytes = bytes.and_then(|bytes| Mac::try_from(bytes).ok());
    bytes.ok_or_else(|| refused(format!("{text} is no MAC address")))
}

/// A namespace (`net`, `mnt`) of the process with this number that started at this tick (field 22 of `/proc/<pid>/stat`).
pub fn open_namespace(process: Process, kind: &str) -> Result<File, Error> {
    let Process { pid, start } = process;
    let namespace = File::open(format!("/proc/{pid}/ns/{kind}")).map_err(|_| has_ended(pid, start))?;
    assert_start(pid, start)?;
    Ok(namespace)
}

/// The mount namespace of a process, unless it is hostd's own: nothing for a sandbox is ever mounted on the host.
pub fn open_own_mounts(process: Process) -> Result<Option<File>, Error> {
    let namespace = open_namespace(process, "mnt")?;
    let inode = |file: &File| file.metadata().map(|metadata| metadata.ino());
    let of_host = File::open("/proc/self/ns/mnt").and_then(|file| inode(&file));
    let is_own = inode(&namespace).and_then(|inode| of_host.map(|of_host| inode != of_host));
    match is_own {
        Ok(is_own) => Ok(Some(namespace).filter(|_| is_own)),
        Err(error) => Err(Error::io("stat", "mount namespace", error)),
    }
}

/// Fails unless the process started at this tick; if so, what was opened of it before is of that process.
fn assert_start(pid: u32, start: u64) -> Result<(), Error> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).map_err(|_| has_ended(pid, start))?;
    match start_tick(&String::from_utf8_lossy(&stat)) {
        Some(found) if found == start => Ok(()),
        _ => Err(has_ended(pid, start)),
    }
}

fn has_ended(pid: u32, start: u64) -> Error {
    Error::new(format!("process {pid} is not the one that started at tick {start}: that has ended"))
}

/// The name of a process, in brackets, may hold anything.
pub fn start_tick(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_has_six_bytes_in_hexadecimal() {
        assert_eq!(mac("02:ab:0a:c8:00:01").ok(), Some([2, 0xab, 10, 200, 0, 1]));
        for text in ["", "02:ab:0a:c8:00", "02:ab:0a:c8:00:01:02", "02:ab:0a:c8:00:1g", "02:ab:0a:c8:00:100"] {
            assert!(mac(text).is_err(), "{text}");
        }
    }

    #[test]
    fn connections_from_an_address_are_found_in_the_tables_of_both_families() {
        assert!(has_connections(Ipv4Addr::new(127, 7, 7, 7)).ok() == Some(false));
        let listener = std::net::TcpListener::bind("127.7.7.7:0").expect("bound");
        assert!(has_connections(Ipv4Addr::new(127, 7, 7, 7)).ok() == Some(true));
        assert!(has_connections(Ipv4Addr::new(127, 7, 7, 8)).ok() == Some(false));
        drop(listener);
        let mapped = std::net::UdpSocket::bind("[::ffff:127.7.7.8]:0").expect("bound");
        assert!(has_connections(Ipv4Addr::new(127, 7, 7, 8)).ok() == Some(true));
        drop(mapped);
    }

    #[test]
    fn the_start_of_a_process_is_found_behind_any_name() {
        let rest = (3..=52).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(start_tick(&format!("7 (sleep) {rest}")), Some(22));
        assert_eq!(start_tick(&format!("7 (a) b) 1 2 (c) {rest}")), Some(22));
        assert_eq!(start_tick("7 (sleep"), None);
        assert_eq!(start_tick("7 (sleep) S 1"), None);
    }

    #[test]
    fn the_namespace_of_another_process_with_the_same_number_is_not_opened() {
        let pid = std::process::id();
        let stat = std::fs::read_to_string("/proc/self/stat").expect("readable");
        let start = start_tick(&stat).expect("known");
        assert!(open_namespace(Process { pid, start }, "net").is_ok());
        assert!(open_namespace(Process { pid, start: start + 1 }, "net").is_err());
    }
}
