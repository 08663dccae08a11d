//! What listens in the sandbox, and which process has the socket open.

use crate::dial;
use crate::process::system;
use crate::process::table::Table;
use json::{object, Value};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::IpAddr;

/// Keeps the answer line below its bound.
const LISTENERS_MAX: usize = 512;
/// Bound of the descriptors that one search reads.
const FILES_MAX: usize = 64 * 1024;

/// The listeners by port and address, without those on private ports.
pub fn list(table: &Table) -> Vec<Value> {
    let found: BTreeMap<(u16, IpAddr), u64> = dial::listeners()
        .into_iter()
        .filter(|listener| listener.address.port() > 0)
        .map(|listener| ((listener.address.port(), listener.address.ip()), listener.inode))
        .take(LISTENERS_MAX)
        .collect();
    let holders = holders(found.values().copied().collect());
    let mut private = HashMap::new();
    let mut listed = Vec::new();
    for ((port, ip), inode) in found {
        if *private.entry(port).or_insert_with(|| table.keeps_private(port)) {
            continue;
        }
        let mut fields = vec![("port", u64::from(port).into()), ("address", Value::Text(ip.to_string()))];
        if let Some(&pid) = holders.get(&inode) {
            fields.push(("pid", (pid as u64).into()));
            fields.push(("command", Value::Text(system::command(pid))));
        }
        listed.push(object(fields));
    }
    listed
}

/// The first process that has each of the sockets open.
fn holders(wanted: Vec<u64>) -> HashMap<u64, i32> {
    let mut found = HashMap::new();
    let mut left = FILES_MAX;
    for pid in system::pids() {
        let files = fs::read_dir(format!("/proc/{}/fd", pid)).into_iter().flatten().flatten();
        for file in files.take(left) {
            left -= 1;
            let name = fs::read_link(file.path()).unwrap_or_default();
            if let Some(inode) = super::private_ports::inode_of(&name.to_string_lossy()) {
                if wanted.contains(&inode) {
                    found.entry(inode).or_insert(pid);
                }
            }
        }
        if left == 0 || found.len() == wanted.len() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_listener_has_its_address_and_its_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = u64::from(listener.local_addr().unwrap().port());
        let listed = list(&Table::new());
        let entry = listed.iter().find(|it| it.get("port").and_then(|port| port.as_integer()) == Some(port)).unwrap();
        assert_eq!(entry.get("address").unwrap().as_text(), Some("127.0.0.1"));
        assert_eq!(entry.get("pid").unwrap().as_integer(), Some(u64::from(std::process::id())));
        assert!(!entry.get("command").unwrap().as_text().unwrap().is_empty());
    }
}
