//! Waits until a guest has closed its ends of connections: CRIU refuses sockets that lead out of the sandbox. Gives up silently after
//! a while; then CRIU reports what it found.
//!
//! An accepted end belongs to the network namespace of the connecting process, hostd, and has the name of the guest's socket. The open
//! files of the guest show to which sandbox the end belongs. An end that waits to be accepted is no open file of any guest yet, so it may
//! belong to this one, which would accept it at the moment of the dump.

use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use sys::Error;

const TABLE: &str = "/proc/self/net/unix";
const GUEST_SOCKET: &[u8] = b"/.atoll/run/guest.sock";
const CONNECTED: &[u8] = b"03";
const WAITS_TO_BE_ACCEPTED: &[u8] = b"02";
/// A guest whose sandbox is busy on its one processor needs a while.
const WAIT: Duration = Duration::from_secs(3);
/// On a host with many sandboxes there may always be an end that waits to be accepted.
const WAIT_FOR_ACCEPTS: Duration = Duration::from_millis(500);
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Each look reads the whole table of the host.
const PAUSE_MAX: Duration = Duration::from_millis(16);

pub fn await_unconnected(pid: i32) -> Result<(), Error> {
    let start = Instant::now();
    let mut pause = PAUSE_MIN;
    while start.elapsed() < WAIT {
        let table = fs::read(TABLE).map_err(|error| Error::io("read", TABLE, error))?;
        let some_wait = ends(&table, WAITS_TO_BE_ACCEPTED).next().is_some();
        let may_wait = some_wait && start.elapsed() < WAIT_FOR_ACCEPTS;
        if !may_wait && !is_connected(pid, &table) {
            break;
        }
        sleep(pause);
        pause = PAUSE_MAX.min(pause * 2);
    }
    Ok(())
}

fn is_connected(pid: i32, table: &[u8]) -> bool {
    let own = sockets_of(pid);
    let is_among_them = ends(table, CONNECTED).any(|inode| own.contains(inode));
    is_among_them
}

/// The inodes of a process's sockets, as text.
fn sockets_of(pid: i32) -> HashSet<Vec<u8>> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    let inode = |target: std::path::PathBuf| {
        let inode = target.as_os_str().as_bytes().strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
        Some(inode.to_vec())
    };
    targets.filter_map(inode).collect()
}

/// The inodes of guests' ends in a state. The table is like /proc/net/unix: address, count, protocol, flags, type, state, inode, name.
fn ends<'a>(table: &'a [u8], wanted: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    table.split(|byte| *byte == b'\n').filter_map(move |line| {
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).skip(5);
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some(state), Some(inode), Some(GUEST_SOCKET), None) if state == wanted => Some(inode),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_all_sockets_those_that_a_guest_has_accepted_count() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path
000000004d3b1bb5: 00000002 00000000 00010000 0001 01 301 /.atoll/run/guest.sock
00000000d3b1bb54: 00000003 00000000 00000000 0001 03 302 /.atoll/run/guest.sock
000000003b1bb54d: 00000003 00000000 00000000 0001 03 303
00000000b1bb54d3: 00000003 00000000 00000000 0001 03 304 /.atoll/run/guest.sock.other
000000001bb54d3b: 00000003 00000000 00000000 0001 03   305 /.atoll/run/guest.sock
00000000bb54d3b1: 00000002 00000000 00000000 0001 02     0 /.atoll/run/guest.sock
";
        let found: Vec<&[u8]> = ends(table, CONNECTED).collect();
        assert_eq!(found, [&b"302"[..], &b"305"[..]]);
        let waiting: Vec<&[u8]> = ends(table, WAITS_TO_BE_ACCEPTED).collect();
        assert_eq!(waiting, [&b"0"[..]]);
    }
}
