//! The table of processes: lookup, reaping, killing and expiry.
//!
//! The table's lock is held while a process is forked and while children are reaped, so no end is missed. While a caller holds the lock,
//! the pid of a leader that was not reaped yet stays that leader's.

use crate::clock;
use crate::process::private_ports;
use crate::process::{Ended, Process};
use crate::protocol::fault::{Fault, Outcome};
use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Processes that run, or that left something behind which still holds their output open.
const LIVE_MAX: usize = 1024;
/// How long an ended process is known, in time in which the sandbox ran.
const FINISHED_KEEP: Duration = Duration::from_secs(600);
/// Bounds of ended processes: above them, the oldest ones whose output was taken are forgotten early.
const FINISHED_MAX: usize = 256;
const FINISHED_BYTES_MAX: usize = 64 << 20;
/// Bounds of ended processes whose output was not taken: above them, no process is started.
const AWAITED_MAX: usize = 2048;
const AWAITED_BYTES_MAX: usize = 64 << 20;
/// Rounds of the search for members of a killed session, since they may fork meanwhile.
const KILL_ROUNDS: usize = 8;

pub struct Table {
    inner: Mutex<Inner>,
    live: AtomicUsize,
}

#[derive(Default)]
pub struct Inner {
    by_id: HashMap<String, Arc<Process>>,
    /// Leaders that were not reaped yet, released ones too.
    by_pid: HashMap<i32, Arc<Process>>,
}

/// Ended processes whose output was not taken.
pub struct Awaited {
    pub count: usize,
    pub bytes: usize,
}

/// One place among the live processes; free again when it is dropped.
pub struct Place(Arc<Table>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Inner {
    pub fn check_free(&self, id: &str) -> Outcome<()> {
        match self.by_id.contains_key(id) {
            true => Err(Fault::conflict(format!("id: process '{}' exists", id))),
            false => Ok(()),
        }
    }

    pub fn insert(&mut self, process: &Arc<Process>) {
        self.by_id.insert(process.id.clone(), process.clone());
        if process.pid > 0 {
            self.by_pid.insert(process.pid, process.clone());
        }
    }
}

impl Table {
    pub fn new() -> Table {
        Table { inner: Mutex::new(Inner::default()), live: AtomicUsize::new(0) }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn place(self: &Arc<Table>) -> Outcome<Place> {
        let awaited = self.forget_old();
        if awaited.count >= AWAITED_MAX || awaited.bytes >= AWAITED_BYTES_MAX {
            return Err(Fault::unavailable(format!(
                "{} ended processes hold {} bytes of output that nobody has fetched: fetch their results first",
                awaited.count, awaited.bytes
            )));
        }
        let place = Place(self.clone());
        if self.live.fetch_add(1, Ordering::SeqCst) >= LIVE_MAX {
            return Err(Fault::unavailable(format!("{} processes run in this sandbox already", LIVE_MAX)));
        }
        Ok(place)
    }

    pub fn find(&self, id: &str) -> Outcome<Arc<Process>> {
        let found = self.lock().by_id.get(id).cloned();
        found.ok_or_else(|| Fault::not_found(format!("no process '{}'", id)))
    }

    /// All known processes, oldest first.
    pub fn all(&self) -> Vec<Arc<Process>> {
        let mut all: Vec<Arc<Process>> = self.lock().by_id.values().cloned().collect();
        all.sort_by(|a, b| (a.started_seconds, &a.id).cmp(&(b.started_seconds, &b.id)));
        all
    }

    /// Whether a port is held by a process that keeps its ports for itself.
    pub fn keeps_private(&self, port: u16) -> bool {
        self.private_leaders().into_iter().any(|leader| private_ports::holds(leader, port))
    }

    pub fn private_leaders(&self) -> Vec<i32> {
        let inner = self.lock();
        inner.by_pid.values().filter(|process| process.has_private_ports).map(|process| process.pid).collect()
    }

    /// Reaps everything that is dead, orphans too.
    pub fn reap(&self) {
        let mut inner = self.lock();
        while let Some((pid, status)) = sys::reap() {
            if let Some(process) = inner.by_pid.remove(&pid) {
                process.leader_ended(status);
            }
        }
    }

    /// Signals the process group of a process whose leader lives, and with SIGKILL all of its session.
    pub fn kill(&self, process: &Process, signal: i32, timed_out: bool) {
        let _inner = self.lock();
        {
            let mut state = process.state();
            if state.leader.is_some() || process.pid <= 0 {
                return;
            }
            state.timed_out |= timed_out;
        }
        sys::kill(-process.pid, signal);
        if signal == sys::SIGKILL {
            for _ in 0..KILL_ROUNDS {
                let members = session_members(process.pid);
                if members.is_empty() {
                    break;
                }
                for pid in members {
                    sys::kill(pid, signal);
                }
            }
        }
    }

    /// Removes a process from the table and kills it if it runs.
    pub fn release(&self, id: &str) -> Outcome<()> {
        let process = self.lock().by_id.remove(id).ok_or_else(|| Fault::not_found(format!("no process '{}'", id)))?;
        self.kill(&process, sys::SIGKILL, false);
        let bytes = process.state().log.memory();
        drop(process);
        if bytes > 1 << 20 {
            sys::malloc_trim();
        }
        Ok(())
    }

    /// Forgets finished processes that are too old. Above the bounds, forgets the oldest ones whose output was taken. Returns the remaining
    /// ones whose output was not taken.
    pub fn forget_old(&self) -> Awaited {
        let mut inner = self.lock();
        let mut finished: Vec<(Ended, String, usize, bool)> = Vec::new();
        for process in inner.by_id.values() {
            let state = process.state();
            if let Some(ended) = state.ended {
                finished.push((ended, process.id.clone(), state.log.memory(), state.is_awaited()));
            }
        }
        finished.sort();
        let (mut count, mut bytes) = (finished.len(), finished.iter().map(|entry| entry.2).sum::<usize>());
        let mut left = Awaited { count: 0, bytes: 0 };
        for (ended, id, size, awaited) in finished {
            let old = clock::now().saturating_sub(ended.clock) >= FINISHED_KEEP;
            let excess = count > FINISHED_MAX || bytes > FINISHED_BYTES_MAX;
            if old || (excess && !awaited) {
                count -= 1;
                bytes -= size;
                inner.by_id.remove(&id);
            } else if awaited {
                left.count += 1;
                left.bytes += size;
            }
        }
        left
    }

    /// Ends all processes of this guest, gently first.
    pub fn terminate_all(&self, everything: bool, gentle: Duration, signals: &sys::Signals) {
        let started = Instant::now();
        self.signal_all(everything, sys::SIGTERM);
        self.hang_up();
        while (!self.lock().by_pid.is_empty() || (everything && sys::others_live())) && started.elapsed() < gentle {
            signals.wait_at_most(Duration::from_millis(50));
            self.reap();
        }
        self.signal_all(everything, sys::SIGKILL);
    }

    /// Hangs up processes on a terminal: shells there ignore SIGTERM. Others would die of SIGHUP while they handle SIGTERM.
    fn hang_up(&self) {
        let processes: Vec<Arc<Process>> = self.lock().by_pid.values().cloned().collect();
        for process in processes.iter().filter(|process| process.has_terminal) {
            self.kill(process, sys::SIGHUP, false);
        }
    }

    fn signal_all(&self, everything: bool, signal: i32) {
        if everything {
            // For PID 1, -1 means every other process of the pid namespace.
            return sys::kill(-1, signal);
        }
        let processes: Vec<Arc<Process>> = self.lock().by_pid.values().cloned().collect();
        for process in processes {
            self.kill(&process, signal, false);
        }
    }
}

/// Live processes of a session, in any process group: job control gives each job a group of its own.
fn session_members(session: i32) -> Vec<i32> {
    let mut members = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = match entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) {
            Some(pid) => pid,
            None => continue,
        };
        if let Ok(stat) = fs::read(entry.path().join("stat")) {
            if session_of(&String::from_utf8_lossy(&stat)) == Some(session) {
                members.push(pid);
            }
        }
    }
    members
}

/// The session of a live process in the format of `/proc/<pid>/stat` (proc(5)). The process's name may hold anything.
fn session_of(stat: &str) -> Option<i32> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_is_found_behind_any_process_name() {
        assert_eq!(session_of("42 (a b) c) S 1 41 40 0 -1"), Some(40));
        assert_eq!(session_of("42 (sh) Z 1 41 40 0 -1"), None);
        assert_eq!(session_of("42 (sh) S 1"), None);
        assert_eq!(session_of(""), None);
    }

    #[test]
    fn places_are_bounded_and_come_back() {
        let table = Arc::new(Table::new());
        let mut places: Vec<Place> = (0..LIVE_MAX).map(|_| table.place().ok().unwrap()).collect();
        assert_eq!(table.place().err().unwrap().code, "unavailable");
        places.pop();
        assert!(table.place().is_ok());
    }
}
