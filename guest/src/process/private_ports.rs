//! Ports that cannot be dialled: the listeners of an agent and of the programs that belong to it.
//!
//! An agent starts two kinds of processes. Its tools share its process group, or it speaks to them over their standard input: they belong
//! to it. Commands of the model lead process groups of their own and have no input: previews show what they serve. A process that outlives
//! its parent belongs to nobody.

use crate::dial::{self, Listener};
use std::fs;

/// The limit of processes of a sandbox.
const PROCESSES_MAX: usize = 4096;
/// Descriptors beyond this bound are not searched: their ports are not private.
const SOCKETS_MAX: usize = 64 * 1024;

struct Socket {
    pid: i32,
    fd: i32,
    inode: u64,
}

/// Whether a process, or one that belongs to it, listens on a port.
pub fn holds(leader: i32, port: u16) -> bool {
    let mut unsure = Vec::new();
    for socket in belonging_to(leader).into_iter().flat_map(sockets).take(SOCKETS_MAX) {
        match sys::listening_port(socket.pid, socket.fd) {
            Ok(Some(listening)) if listening == port => return true,
            Ok(_) => {}
            Err(_) => unsure.push(socket.inode),
        }
    }
    // The kernel's table knows these too. It comes last, because it takes milliseconds on a machine with much memory.
    !unsure.is_empty() && listens_among(&dial::listeners(), port, &unsure)
}

fn listens_among(listeners: &[Listener], port: u16, inodes: &[u64]) -> bool {
    listeners.iter().any(|listener| listener.address.port() == port && inodes.contains(&listener.inode))
}

pub fn belonging_to(leader: i32) -> Vec<i32> {
    let mut found = vec![leader];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        let group = sys::process_group(pid);
        let belongs = |&child: &i32| sys::process_group(child) == group || (pid == leader && is_spoken_to(child));
        let room = PROCESSES_MAX.saturating_sub(found.len());
        found.extend(children(pid).into_iter().filter(belongs).take(room));
        next += 1;
    }
    found
}

/// Each thread has a list of its own children (proc(5)).
fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{}/task", pid)).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| numbers(&list)).collect()
}

fn numbers(list: &str) -> Vec<i32> {
    list.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn is_spoken_to(pid: i32) -> bool {
    let input = fs::read_link(format!("/proc/{}/fd/0", pid)).unwrap_or_default();
    let name = input.to_string_lossy();
    name.starts_with("socket:") || name.starts_with("pipe:")
}

fn sockets(pid: i32) -> impl Iterator<Item = Socket> {
    let files = fs::read_dir(format!("/proc/{}/fd", pid)).into_iter().flatten().flatten();
    files.filter_map(move |file| {
        let fd = file.file_name().to_str()?.parse().ok()?;
        let inode = inode_of(&fs::read_link(file.path()).ok()?.to_string_lossy())?;
        Some(Socket { pid, fd, inode })
    })
}

/// The inode in the link target of a socket's descriptor: `socket:[1234]`.
pub fn inode_of(name: &str) -> Option<u64> {
    name.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::io::AsRawFd;
    use std::os::unix::net::UnixListener;

    fn own_pid() -> i32 {
        std::process::id() as i32
    }

    #[test]
    fn a_port_is_held_as_long_as_something_listens_there() {
        for host in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(host).unwrap();
            let address = listener.local_addr().unwrap();
            assert!(holds(own_pid(), address.port()));
            assert!(!holds(own_pid(), 1));
            drop(listener);
            assert!(!holds(own_pid(), address.port()));
        }
    }

    #[test]
    fn only_what_listens_for_tcp_has_a_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let folder = std::env::temp_dir().join(format!("atoll-ports-{}", own_pid()));
        let _ = fs::remove_file(&folder);
        let unix = UnixListener::bind(&folder).unwrap();
        let file = fs::File::open("/dev/null").unwrap();
        let port = |fd| sys::listening_port(own_pid(), fd).unwrap();
        assert_eq!(port(listener.as_raw_fd()), Some(address.port()));
        assert_eq!((port(client.as_raw_fd()), port(unix.as_raw_fd()), port(file.as_raw_fd())), (None, None, None));
        // A process that has ended listens on no port.
        assert_eq!((port(9999), sys::listening_port(i32::MAX, 0).unwrap()), (None, None));
        fs::remove_file(&folder).unwrap();
    }

    #[test]
    fn the_table_of_listeners_tells_the_same() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own: Vec<u64> =
            sockets(own_pid()).filter(|socket| socket.fd == listener.as_raw_fd()).map(|it| it.inode).collect();
        assert_eq!(own.len(), 1);
        assert!(listens_among(&dial::listeners(), port, &own));
        assert!(!listens_among(&dial::listeners(), port, &[]) && !listens_among(&dial::listeners(), 1, &own));
    }

    #[test]
    fn what_the_kernel_writes_is_read_and_nonsense_is_not() {
        assert_eq!(numbers("12 345 \n"), [12, 345]);
        assert!(numbers("x -").is_empty());
        assert_eq!(inode_of("socket:[77]"), Some(77));
        for name in ["", "pipe:[77]", "socket:[]", "socket:[x]", "/tmp/socket:[1]"] {
            assert_eq!(inode_of(name), None, "{}", name);
        }
    }
}
