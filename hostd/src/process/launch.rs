//! Starts programs for the server. The server's memory is large, and each `fork` of it copies page tables for tens of
//! milliseconds while everything else waits; this process is small. It ends with its standard input, where the server writes
//! requests; the answers go to standard output, the first one, with id 0 and the version, as soon as it serves.
//!
//! Frames (`frame.rs`), integers big-endian:
//!
//!     request  id:u32 op:u8 detached:u8 input_length:u32 input argv (words joined by NUL)
//!     answer   id:u32 status:u8 code:i32 stdout_length:u32 stdout stderr
//!
//! `op` 0 runs, 1 kills the program of that id with all of its process group. `status` 0: exited with `code`; 1: killed by
//! signal `code`; 2: not started, `code` is the error number; 3: killed because it wrote too much.
//!
//! `op` 2 connects to a port of a sandbox's loopback; its words are the pid of a process of the sandbox, its start tick, and the port.
//! The socket comes on the channel (`sys/channel.rs`) and is the answer; a failure is answered with status 2.
//!
//! `op` 3 waits for the end of a process; its words are the pid and the start tick. It is answered with status 0 when that process has
//! ended, and with status 2 when it cannot be watched.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use crate::alone::Alone;
use crate::commands;
use crate::connect;
use crate::process::ends::Ends;
use crate::protocol::args::Args;
use crate::protocol::frame;
use sys::channel::Channel;
use sys::Error;

const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
const OUTPUT_BYTES_MAX: u64 = 4 * 1024 * 1024;
const HEADER_BYTES: usize = 10;
/// Room for the removal of nested folders.
pub const STACK_BYTES: usize = 1024 * 1024;
/// Error numbers (errno(3)).
const EINVAL: i32 = 22;
const ENOTSUP: i32 = 95;

const KILL: u8 = 1;
const CONNECT: u8 = 2;
const WATCH: u8 = 3;

const EXITED: u8 = 0;
const SIGNALLED: u8 = 1;
const NOT_STARTED: u8 = 2;
const TOO_MUCH: u8 = 3;

/// The programs of unanswered requests, by request id.
type Programs = Mutex<HashMap<u32, Program>>;

enum Program {
    Starting,
    /// A kill came before it ran.
    Killed,
    /// The pid, which no other process can have while this is in the table.
    Running(i32),
}

/// What the threads of the requests share.
struct Server {
    programs: Programs,
    ends: Ends,
    /// Where sockets are handed over; without one, no connection is made.
    channel: Option<Channel>,
    output: Mutex<io::Stdout>,
}

pub fn serve(version: &str, channel: Option<Channel>) -> Result<(), Error> {
    let ends = Ends::new().map_err(|error| Error::new(format!("epoll: {error}")))?;
    let (programs, output) = (Programs::default(), Mutex::new(io::stdout()));
    let server = Arc::new(Server { programs, ends, channel, output });
    let ready = Answer { status: EXITED, code: 0, stdout: version.into(), stderr: vec![] };
    ready.send(0, &server.output).map_err(|error| Error::new(format!("standard output: {error}")))?;
    let teller = Arc::clone(&server);
    in_thread(move || teller.tell_ends()).map_err(|error| Error::new(format!("thread: {error}")))?;
    let mut input = io::stdin().lock();
    while let Some(frame) = frame::read(&mut input, HEADER_BYTES..=REQUEST_BYTES_MAX)
        .map_err(|error| Error::new(format!("standard input: {error}")))?
    {
        let request = Request::parse(&frame).ok_or_else(|| Error::new("a malformed request"))?;
        let (id, of_thread) = (request.id, Arc::clone(&server));
        let started = match request.op {
            KILL => {
                kill(&server.programs, id);
                Ok(())
            }
            WATCH => {
                server.watch(&request);
                Ok(())
            }
            CONNECT => in_thread(move || of_thread.connect(&request)),
            _ => {
                // Before the thread starts, so that a following kill finds it.
                lock(&server.programs).insert(id, Program::Starting);
                in_thread(move || of_thread.send(id, &request.run(&of_thread.programs)))
            }
        };
        if let Err(error) = started {
            lock(&server.programs).remove(&id);
            server.send(id, &Answer::not_started(&error));
        }
    }
    Ok(())
}

impl Server {
    fn watch(&self, request: &Request) {
        match request.watch(&self.ends) {
            Ok(true) => {}
            Ok(false) => self.send(request.id, &Answer::done(Ok(()))),
            Err(error) => self.send(request.id, &Answer::not_started(&error)),
        }
    }

    /// Answers the requests of processes that end.
    fn tell_ends(&self) {
        while let Ok(id) = self.ends.next() {
            self.send(id, &Answer::done(Ok(())));
        }
    }

    fn connect(&self, request: &Request) {
        if let Err(error) = request.connect(self.channel.as_ref()) {
            self.send(request.id, &Answer::not_started(&error));
        }
    }

    /// A failed write means that the server has ended; the main thread sees the end of its input.
    fn send(&self, id: u32, answer: &Answer) {
        let _ = answer.send(id, &self.output);
    }
}

fn in_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(work).map(drop)
}

fn kill(programs: &Programs, id: u32) {
    match lock(programs).get_mut(&id) {
        Some(Program::Running(pid)) => sys::kill_group(*pid),
        Some(program) => *program = Program::Killed,
        None => {}
    }
}

struct Request {
    id: u32,
    op: u8,
    detached: bool,
    input: Vec<u8>,
    argv: Vec<Vec<u8>>,
}

struct Answer {
    status: u8,
    code: i32,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Request {
    fn parse(frame: &[u8]) -> Option<Request> {
        let input_length = u32_at(frame, 6)? as usize;
        let rest = frame.get(HEADER_BYTES..)?;
        let input = rest.get(..input_length)?.to_vec();
        let argv = rest.get(input_length..)?.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        Some(Request { id: u32_at(frame, 0)?, op: frame[4], detached: frame[5] == 1, input, argv })
    }

    fn connect(&self, channel: Option<&Channel>) -> io::Result<()> {
        let [pid, start, port] = self.numbers()?;
        let invalid = |_| io::Error::from_raw_os_error(EINVAL);
        let (pid, port) = (pid.try_into().map_err(invalid)?, port.try_into().map_err(invalid)?);
        let channel = channel.ok_or_else(|| io::Error::from_raw_os_error(ENOTSUP))?;
        channel.send(self.id, &connect::connect(pid, start, port)?)
    }

    fn watch(&self, ends: &Ends) -> io::Result<bool> {
        let [pid, start] = self.numbers()?;
        ends.watch(self.id, pid.try_into().map_err(|_| io::Error::from_raw_os_error(EINVAL))?, start)
    }

    /// The words of a request that has so many, all of them numbers.
    fn numbers<const N: usize>(&self) -> io::Result<[u64; N]> {
        let parse = |word: &Vec<u8>| std::str::from_utf8(word).ok()?.parse().ok();
        let numbers: Option<Vec<u64>> = self.argv.iter().map(parse).collect();
        let numbers = numbers.and_then(|numbers| <[u64; N]>::try_from(numbers).ok());
        numbers.ok_or_else(|| io::Error::from_raw_os_error(EINVAL))
    }

    fn run(&self, programs: &Programs) -> Answer {
        let mut words = self.argv.iter().map(|word| OsStr::from_bytes(word).to_owned());
        let here = match self.own_command() {
            None => None,
            // The namespace is this thread's, and that of the program that it starts.
            Some(command) if command == "alone" => {
                let entered = Alone::parse(&mut words.by_ref().skip(2)).and_then(|alone| alone.enter());
                entered.err().map(|error| Answer::done(Err(error)))
            }
            // A process of its own joins the group.
            Some(command) if command == "within" => None,
            Some(command) => run_here(command, words.clone().skip(2)),
        };
        let started = match here {
            Some(answer) => Err(answer),
            None => self.start(words, programs).map_err(|error| Answer::not_started(&error)),
        };
        started.map_or_else(
            |answer| {
                lock(programs).remove(&self.id);
                answer
            },
            |child| self.finish(child, programs),
        )
    }

    /// What this program itself is asked for, such as `remove`.
    fn own_command(&self) -> Option<&OsStr> {
        let mut words = self.argv.iter().map(|word| OsStr::from_bytes(word));
        let is_own = words.next().map(OsStr::to_owned) == std::env::args_os().next();
        words.next().filter(|_| is_own)
    }

    fn start(&self, mut words: impl Iterator<Item = OsString>, programs: &Programs) -> io::Result<Child> {
        let output = || if self.detached { Stdio::null() } else { Stdio::piped() };
        let input = if self.input.is_empty() { Stdio::null() } else { Stdio::piped() };
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(input).stdout(output()).stderr(output());
        // A process group of its own: children of a killed program would keep the pipes open and run on without an owner.
        sys::lead_own_group(&mut command);
        let child = command.spawn()?;
        let pid = child.id() as i32;
        if let Some(Program::Killed) = lock(programs).insert(self.id, Program::Running(pid)) {
            sys::kill_group(pid);
        }
        Ok(child)
    }

    fn finish(&self, mut child: Child, programs: &Programs) -> Answer {
        let pid = child.id() as i32;
        let (mut stdin, mut stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let helper = || thread::Builder::new().stack_size(STACK_BYTES);
        let gathered = thread::scope(|scope| {
            // The exit status decides for a program that exits before it reads its input.
            let fed = helper().spawn_scoped(scope, move || stdin.take().map(|mut stdin| stdin.write_all(&self.input)));
            let errors = helper().spawn_scoped(scope, move || {
                stderr.map(|mut stderr| read_bounded(&mut stderr, pid)).unwrap_or_default()
            });
            let errors = match (fed, errors) {
                (Ok(_), Ok(errors)) => errors,
                (Err(error), _) | (_, Err(error)) => {
                    sys::kill_group(pid);
                    return Err(error);
                }
            };
            let (stdout, too_much) = stdout.as_mut().map(|stdout| read_bounded(stdout, pid)).unwrap_or_default();
            let (stderr, more) = errors.join().unwrap_or_default();
            Ok((stdout, stderr, too_much || more))
        });
        // First wait without reaping: until the pid is out of the table it must not be given to another process.
        sys::wait_for_exit(pid);
        lock(programs).remove(&self.id);
        let ended = child.wait();
        let (stdout, stderr, too_much) = match gathered {
            Ok(gathered) => gathered,
            Err(error) => return Answer::not_started(&error),
        };
        let (status, code) = match ended {
            _ if too_much => (TOO_MUCH, 0),
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => (EXITED, code),
                (None, signal) => (SIGNALLED, signal.unwrap_or(0)),
            },
            Err(_) => (SIGNALLED, 0),
        };
        Answer { status, code, stdout, stderr }
    }
}

/// Does what this program is asked for in this thread, where that is a few system calls.
fn run_here(command: &OsStr, words: impl Iterator<Item = OsString>) -> Option<Answer> {
    let command = command.to_str()?;
    let done = Args::parse(words).and_then(|mut args| commands::run(command, &mut args).transpose());
    done.transpose().map(Answer::done)
}

impl Answer {
    fn done(result: Result<(), Error>) -> Answer {
        let (code, stderr) = match result {
            Ok(()) => (0, String::new()),
            Err(error) => (1, format!("atoll-hostd: {error}\n")),
        };
        Answer { status: EXITED, code, stdout: vec![], stderr: stderr.into_bytes() }
    }

    fn not_started(error: &io::Error) -> Answer {
        let code = error.raw_os_error().unwrap_or(0);
        Answer { status: NOT_STARTED, code, stdout: vec![], stderr: vec![] }
    }

    fn send(&self, id: u32, output: &Mutex<io::Stdout>) -> io::Result<()> {
        let frame = self.encode(id);
        let mut output = lock(output);
        output.write_all(&frame)?;
        output.flush()
    }

    fn encode(&self, id: u32) -> Vec<u8> {
        let length = 13 + self.stdout.len() + self.stderr.len();
        let mut frame = Vec::with_capacity(4 + length);
        frame.extend_from_slice(&(length as u32).to_be_bytes());
        frame.extend_from_slice(&id.to_be_bytes());
        frame.push(self.status);
        frame.extend_from_slice(&self.code.to_be_bytes());
        frame.extend_from_slice(&(self.stdout.len() as u32).to_be_bytes());
        frame.extend_from_slice(&self.stdout);
        frame.extend_from_slice(&self.stderr);
        frame
    }
}

/// Reads to the end, or kills the program when it has written more than the bound.
fn read_bounded(stream: &mut impl Read, pid: i32) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let _ = stream.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut bytes);
    let too_much = bytes.len() as u64 > OUTPUT_BYTES_MAX;
    if too_much {
        sys::kill_group(pid);
        bytes.truncate(OUTPUT_BYTES_MAX as usize);
    }
    (bytes, too_much)
}

fn u32_at(frame: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_be_bytes(frame.get(offset..offset + 4)?.try_into().ok()?))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(detached: bool, input: &[u8], argv: &[&str]) -> Vec<u8> {
        let mut frame = vec![0, 0, 0, 7, 0, u8::from(detached)];
        frame.extend_from_slice(&(input.len() as u32).to_be_bytes());
        frame.extend_from_slice(input);
        frame.extend_from_slice(argv.join("\0").as_bytes());
        frame
    }

    fn run(input: &[u8], argv: &[&str]) -> Answer {
        let programs = Programs::default();
        let answer = Request::parse(&frame(false, input, argv)).expect("parses").run(&programs);
        assert!(lock(&programs).is_empty());
        answer
    }

    #[test]
    fn output_and_exit_status_come_back_apart() {
        let answer = run(b"some input", &["sh", "-c", "cat; echo oops >&2; exit 3"]);
        assert_eq!((answer.status, answer.code), (EXITED, 3));
        assert_eq!((answer.stdout.as_slice(), answer.stderr.as_slice()), (&b"some input"[..], &b"oops\n"[..]));
    }

    #[test]
    fn a_kill_that_comes_before_the_program_runs_is_not_lost() {
        let programs = Programs::default();
        lock(&programs).insert(7, Program::Starting);
        kill(&programs, 7);
        let answer = Request::parse(&frame(false, b"", &["sleep", "600"])).expect("parses").run(&programs);
        assert_eq!((answer.status, answer.code), (SIGNALLED, 9));
        kill(&programs, 7);
        assert!(lock(&programs).is_empty());
    }

    #[test]
    fn a_missing_program_is_reported_by_the_error_number() {
        let answer = run(b"", &["/no/such/program"]);
        assert_eq!((answer.status, answer.code), (NOT_STARTED, 2));
    }

    #[test]
    fn a_program_that_writes_too_much_is_killed() {
        let answer = run(b"", &["cat", "/dev/zero"]);
        assert_eq!(answer.status, TOO_MUCH);
        assert_eq!(answer.stdout.len() as u64, OUTPUT_BYTES_MAX);
    }

    #[test]
    fn a_program_in_the_background_does_not_outlive_the_killed_one() {
        let answer = run(b"", &["sh", "-c", "sleep 600 & cat /dev/zero"]);
        assert_eq!(answer.status, TOO_MUCH);
    }

    #[test]
    fn input_that_nobody_reads_is_no_fault() {
        let answer = run(&vec![0; 1024 * 1024], &["true"]);
        assert_eq!((answer.status, answer.code), (EXITED, 0));
    }

    #[test]
    fn a_frame_that_lies_about_its_input_is_refused() {
        let mut lying = frame(false, b"abc", &["true"]);
        lying[9] = 200;
        assert!(Request::parse(&lying).is_none());
        assert!(Request::parse(&[0; 5]).is_none());
    }
}
