//! Configures the network of a sandbox, which is known by its first process. The number of a process is another's as soon as it
//! has ended, so the namespace is opened once, the process looked at after that, and only the descriptor used from there on.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::io::AsRawFd;
use std::process::{Child, Command, Stdio};

use crate::protocol::args::Args;
use crate::sys::{self, Error};

/// Stands in the batch for the host where `ip` wants the namespace of the sandbox.
const NAMESPACE: &str = "@namespace";

pub struct Request {
    pid: u32,
    start: u64,
    close: Option<String>,
}

impl Request {
    pub fn from_args(args: &mut Args) -> Result<Request, Error> {
        Ok(Request { pid: args.number("pid")?, start: args.number("start")?, close: args.optional_text("close")? })
    }
}

/// Reads two batches of `ip` with an empty line between them, and runs the first here and then the second in the sandbox. Before
/// the second the sandbox's connections from the address `close` end; what only listens stays.
pub fn configure(request: &Request) -> Result<(), Error> {
    let namespace = open_namespace(request.pid, request.start)?;
    let mut input = String::new();
    io::stdin().read_to_string(&mut input).map_err(|error| Error::io("read", "standard input", error))?;
    let (here, inside) =
        input.split_once("\n\n").ok_or_else(|| Error::new("standard input must hold two batches of ip"))?;
    // It is found by way of this process, whose descriptors no program that it starts has.
    let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
    let outer = start_ip(&here.replace(NAMESPACE, &path))?;
    let entered = sys::enter_network(&namespace);
    let closing = entered.and_then(|_| request.close.as_deref().map(start_closing).transpose());
    // Whatever became of the other: nothing that was started outlives this process.
    let joined = finish("ip", outer);
    let closed = closing.and_then(|child| child.map_or(Ok(()), |child| finish("ss", child)));
    joined.and(closed)?;
    finish("ip", start_ip(inside)?)
}

/// The network namespace of the process with this number that started at this tick (field 22 of `/proc/<pid>/stat`).
fn open_namespace(pid: u32, start: u64) -> Result<File, Error> {
    let gone = || Error::new(format!("process {pid} is not the one that started at tick {start}: that has ended"));
    let namespace = File::open(format!("/proc/{pid}/ns/net")).map_err(|_| gone())?;
    let stat = std::fs::read(format!("/proc/{pid}/stat")).map_err(|_| gone())?;
    match start_tick(&String::from_utf8_lossy(&stat)) {
        Some(found) if found == start => Ok(namespace),
        _ => Err(gone()),
    }
}

/// The name of a process, in brackets, may hold anything.
fn start_tick(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

fn start_ip(batch: &str) -> Result<Child, Error> {
    let mut child = start(Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()))?;
    let mut stdin = child.stdin.take().expect("it is piped");
    // One that ends before it has read all is judged by its exit status.
    let _ = stdin.write_all(batch.as_bytes());
    Ok(child)
}

fn start_closing(address: &str) -> Result<Child, Error> {
    let words = ["--kill", "--no-header", "--tcp", "--udp", "src", address];
    start(Command::new("ss").args(words).stdin(Stdio::null()))
}

fn start(command: &mut Command) -> Result<Child, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdout(Stdio::null()).spawn().map_err(|error| Error::io("start", name, error))
}

fn finish(name: &str, mut child: Child) -> Result<(), Error> {
    let status = child.wait().map_err(|error| Error::io("wait for", name, error))?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::new(format!("{name}: {status}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(open_namespace(pid, start).is_ok());
        assert!(open_namespace(pid, start + 1).is_err());
    }
}
