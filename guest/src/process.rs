//! One process of the table and the thread that supervises it.
//!
//! States: *running* (the leader lives) → *draining* (the leader was reaped, its output is still read) → *ended* (the exit
//! code is reported, after all output). Only the thread that reads the output moves a process to *ended*.

pub mod attach;
mod drain;
mod interpreter;
pub mod listeners;
pub mod log;
pub mod output;
pub mod pause;
pub mod private_ports;
mod readers;
pub mod spawn;
mod stdin_cursor;
pub mod system;
pub mod table;

use crate::clock::{self, Stopwatch};
use crate::process::drain::Drain;
use crate::process::log::{Log, Stream};
use crate::process::pause::Pauses;
use crate::process::readers::Readers;
use crate::process::stdin_cursor::StdinCursors;
use crate::process::table::Table;
use json::{object, Value};
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use sys::{Event, PollFd, POLLERR, POLLHUP, POLLIN};

const READ_BYTES: usize = 32 * 1024;
/// Times are counted in steps of at most this, so that a freeze of the sandbox does not count.
const STEP_MAX: Duration = Duration::from_millis(1000);

pub const TIMEOUT_EXIT_CODE: i32 = 124;

pub struct Process {
    pub id: String,
    pub argv: Vec<String>,
    /// 0 when the program could not be executed at all.
    pub pid: i32,
    pub started_seconds: u64,
    pub has_terminal: bool,
    /// `dial` refuses the ports of the process and of the programs that belong to it.
    pub has_private_ports: bool,
    state: Mutex<State>,
}

/// Properties that are fixed at the start.
#[derive(Clone, Copy)]
pub struct About {
    pub has_terminal: bool,
    pub has_private_ports: bool,
}

pub struct State {
    pub log: Log,
    /// Wait status of the leader, set when it is reaped. Until then no other process can have its pid.
    pub leader: Option<i32>,
    /// Before the end: the time is over. After it: the timeout was the cause.
    pub timed_out: bool,
    pub exit: Option<i32>,
    pub ended: Option<Ended>,
    /// An answer to `process` has reported its end.
    pub end_told: bool,
    /// A client got all output after `end_told`, or `exit` after all output.
    pub taken: bool,
    pub clients: usize,
    pub stdin_cursors: StdinCursors,
    pub pauses: Pauses,
    pub readers: Readers,
    /// Write end of standard input (or the terminal), until end of input.
    pub input: Option<Arc<File>>,
    pub terminal: Option<Arc<File>>,
    /// Woken when there is output, or the end.
    watchers: Vec<Arc<Event>>,
    /// Wakes the supervising thread; absent after its end.
    pub supervisor: Option<Arc<Event>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ended {
    /// Orders the ends, for which the clock is too coarse.
    pub order: u64,
    pub clock: Duration,
    /// Seconds since 1970.
    pub seconds: u64,
}

/// Remaining times after which the process is killed.
pub struct Deadlines {
    timeout: Option<Duration>,
    after_disconnect: Option<Duration>,
    /// `after_disconnect` restarts with this value when a client was attached.
    disconnect_max: Option<Duration>,
}

pub fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|time| time.as_secs()).unwrap_or(0)
}

impl Process {
    pub fn new(id: String, argv: Vec<String>, pid: i32, about: About, log: Log) -> Process {
        let state = State {
            log,
            leader: None,
            timed_out: false,
            exit: None,
            ended: None,
            end_told: false,
            taken: false,
            clients: 0,
            stdin_cursors: StdinCursors::default(),
            pauses: Pauses::default(),
            readers: Readers::default(),
            input: None,
            terminal: None,
            watchers: Vec::new(),
            supervisor: None,
        };
        let About { has_terminal, has_private_ports } = about;
        let started_seconds = now_seconds();
        Process { id, argv, pid, started_seconds, has_terminal, has_private_ports, state: Mutex::new(state) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn info(&self) -> Value {
        let state = self.state();
        let argv = self.argv.iter().map(|word| Value::Text(word.clone())).collect();
        let mut info = object([
            ("id", self.id.as_str().into()),
            ("pid", (self.pid as u64).into()),
            ("argv", Value::List(argv)),
            ("running", state.exit.is_none().into()),
            ("startedSeconds", self.started_seconds.into()),
            ("attachedClients", (state.clients as u64).into()),
            ("pty", self.has_terminal.into()),
        ]);
        if let (Value::Object(fields), Some(code), Some(ended)) = (&mut info, state.exit, state.ended) {
            fields.insert("exitCode".to_string(), (code as u64).into());
            fields.insert("endedSeconds".to_string(), ended.seconds.into());
            if state.timed_out {
                fields.insert("timedOut".to_string(), true.into());
            }
        }
        info
    }

    /// The leader was reaped.
    pub fn leader_ended(&self, status: i32) {
        let mut state = self.state();
        state.leader = Some(status);
        state.wake_supervisor();
    }

    pub fn end(&self, code: i32) {
        static ENDS: AtomicU64 = AtomicU64::new(0);
        let mut state = self.state();
        state.exit = Some(code);
        let order = ENDS.fetch_add(1, Ordering::Relaxed);
        state.ended = Some(Ended { order, clock: clock::now(), seconds: now_seconds() });
        state.input = None;
        state.terminal = None;
        state.supervisor = None;
        state.notify();
    }
}

impl State {
    pub fn watch(&mut self, watcher: &Arc<Event>) {
        self.watchers.push(watcher.clone());
    }

    pub fn unwatch(&mut self, watcher: &Arc<Event>) {
        self.watchers.retain(|other| !Arc::ptr_eq(other, watcher));
    }

    /// Paused clients and readers decide what the log can drop.
    pub fn change_pauses(&mut self, change: impl FnOnce(&mut Pauses)) {
        change(&mut self.pauses);
        self.hold();
        self.wake_supervisor();
    }

    /// Wakes the process if it waited for room.
    pub fn change_readers<T>(&mut self, change: impl FnOnce(&mut Readers) -> T) -> T {
        let changed = change(&mut self.readers);
        let was_full = self.log.is_full();
        self.hold();
        if was_full && !self.log.is_full() {
            self.wake_supervisor();
        }
        changed
    }

    fn hold(&mut self) {
        let holds = [self.pauses.hold(), self.readers.hold()];
        self.log.hold(holds.iter().flatten().min().copied());
    }

    /// Whether a client may still ask for its output or its end.
    pub fn is_awaited(&self) -> bool {
        !self.taken || !self.log.settled()
    }

    pub fn wake_supervisor(&self) {
        if let Some(supervisor) = &self.supervisor {
            supervisor.notify();
        }
    }

    fn notify(&self) {
        for watcher in &self.watchers {
            watcher.notify();
        }
    }
}

/// Reads the output of a process into its log, enforces its deadlines and reports its end. Then it reads and drops the output of
/// background processes that still hold the pipes.
pub fn supervise(
    table: &Table,
    process: &Process,
    wake: &Event,
    mut outputs: Vec<(Stream, File)>,
    mut deadlines: Deadlines,
) {
    let mut buffer = vec![0; READ_BYTES];
    let mut drain: Option<Drain> = None;
    let mut stopwatch = Stopwatch::new();
    loop {
        let mut fds = vec![PollFd::new(wake, POLLIN)];
        let mut polled = Vec::new();
        let (connected, waited_for) = {
            let state = process.state();
            if state.leader.is_some() && drain.is_none() {
                drain = Some(Drain::new(&outputs));
            }
            for (index, (stream, output)) in outputs.iter().enumerate() {
                let room = if drain.is_some() { READ_BYTES } else { state.log.room(*stream).min(READ_BYTES) };
                if room > 0 {
                    fds.push(PollFd::new(output, POLLIN));
                    polled.push((index, room));
                }
            }
            let paused = state.pauses.any();
            (state.clients > 0 || paused, paused || state.readers.expects())
        };
        if let Some(drain) = &drain {
            if outputs.is_empty() || drain.over() {
                break;
            }
        }
        let step = match &drain {
            Some(drain) => Some(drain.left()),
            None if waited_for => Some(deadlines.step(connected).unwrap_or(STEP_MAX)),
            None => deadlines.step(connected),
        };
        sys::poll(&mut fds, step);
        let passed = stopwatch.next(step.unwrap_or(STEP_MAX));
        if waited_for {
            let mut state = process.state();
            state.change_pauses(|pauses| pauses.pass(passed));
            state.change_readers(|readers| readers.pass(passed));
        }
        if let Some(drain) = &mut drain {
            drain.pass(passed);
        } else if deadlines.passed(passed, connected, table, process) {
            deadlines = Deadlines::new(None, None);
        }
        if fds[0].ready(POLLIN) {
            wake.clear();
        }
        let mut closed = [false; 2];
        let mut quiet = true;
        for (fd, (index, room)) in fds[1..].iter().zip(polled) {
            if !fd.ready(POLLIN | POLLHUP | POLLERR) {
                continue;
            }
            quiet = false;
            let (stream, output) = &mut outputs[index];
            match output.read(&mut buffer[..room]) {
                Ok(0) => closed[index] = true,
                Ok(count) => {
                    if let Some(drain) = &mut drain {
                        drain.read(count);
                    }
                    let mut state = process.state();
                    state.log.append(*stream, &buffer[..count]);
                    state.notify();
                }
                Err(error) if matches!(error.raw_os_error(), Some(4 | 11)) => {} // EINTR, EAGAIN
                // A terminal whose other side is closed answers EIO.
                Err(_) => closed[index] = true,
            }
        }
        if let Some(drain) = &mut drain {
            drain.quiet = quiet;
        }
        for index in (0..outputs.len()).rev() {
            if closed[index] {
                outputs.remove(index);
            }
        }
    }
    let code = {
        let mut state = process.state();
        let code = sys::exit_code(state.leader.unwrap_or(0));
        // The process may have ended by itself before the kill.
        state.timed_out &= code == 137;
        if state.timed_out {
            TIMEOUT_EXIT_CODE
        } else {
            code
        }
    };
    process.end(code);
    table.forget_old();
    if process.has_terminal {
        return;
    }
    while !outputs.is_empty() {
        let mut fds: Vec<PollFd> = outputs.iter().map(|(_, output)| PollFd::new(output, POLLIN)).collect();
        sys::poll(&mut fds, None);
        for index in (0..fds.len()).rev() {
            if fds[index].ready(POLLIN | POLLHUP | POLLERR) && matches!(outputs[index].1.read(&mut buffer), Ok(0)) {
                outputs.remove(index);
            }
        }
    }
}

impl Deadlines {
    pub fn new(timeout: Option<Duration>, after_disconnect: Option<Duration>) -> Deadlines {
        Deadlines { timeout, after_disconnect, disconnect_max: after_disconnect }
    }

    fn step(&self, connected: bool) -> Option<Duration> {
        let left = match (self.timeout, self.after_disconnect.filter(|_| !connected)) {
            (Some(first), Some(second)) => first.min(second),
            (first, second) => first.or(second)?,
        };
        Some(left.min(STEP_MAX))
    }

    /// Subtracts the time of one step and kills the process when a deadline is reached.
    fn passed(&mut self, elapsed: Duration, connected: bool, table: &Table, process: &Process) -> bool {
        if connected {
            self.after_disconnect = self.disconnect_max;
        }
        let due = |left: &mut Option<Duration>| match left {
            Some(time) => {
                *time = time.saturating_sub(elapsed);
                *time == Duration::from_secs(0)
            }
            None => false,
        };
        if due(&mut self.timeout) {
            table.kill(process, sys::SIGKILL, true);
            return true;
        }
        if !connected && process.state().clients == 0 && due(&mut self.after_disconnect) {
            table.kill(process, sys::SIGKILL, false);
            return true;
        }
        false
    }
}
