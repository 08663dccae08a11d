//! Reports the ends of processes as they come, so that the server need not poll hundreds of processes several times a second.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard};

use crate::network::start_tick;
use crate::protocol::fields::Process;
use sys::epoll::Epoll;
use sys::pidfd::Pidfd;

pub struct Ends {
    epoll: Epoll,
    /// By the id of the request that watches.
    watched: Mutex<HashMap<u32, Pidfd>>,
}

impl Ends {
    pub fn new() -> io::Result<Ends> {
        Ok(Ends { epoll: Epoll::new()?, watched: Mutex::default() })
    }

    /// Makes `next` report the end of `process`. False when it has ended already.
    pub fn watch(&self, id: u32, process: Process) -> io::Result<bool> {
        let Process { pid, start } = process;
        let pidfd = match Pidfd::open(pid as i32) {
            Err(error) if error.raw_os_error() == Some(sys::ESRCH) => return Ok(false),
            opened => opened?,
        };
        // Read after the descriptor was opened: with the right tick, the descriptor is of that process.
        let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        if start_tick(&String::from_utf8_lossy(&stat)) != Some(start) {
            return Ok(false);
        }
        // In the table first, because the end may be reported at once.
        let mut watched = self.lock();
        watched.insert(id, pidfd);
        if let Err(error) = self.epoll.add(&watched[&id], id.into()) {
            watched.remove(&id);
            return Err(error);
        }
        Ok(true)
    }

    /// Waits for an end. Returns the id of the request, once.
    pub fn next(&self) -> io::Result<u32> {
        loop {
            let id = self.epoll.wait()? as u32;
            if let Some(pidfd) = self.lock().remove(&id) {
                // A close would not do: a child between fork and exec has a copy of the descriptor.
                self.epoll.remove(&pidfd)?;
                return Ok(id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Pidfd>> {
        self.watched.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn an_end_is_told_once_by_its_id_and_a_process_of_another_start_has_ended() {
        let ends = Ends::new().expect("epoll");
        let mut children: Vec<_> = (0..2).map(|_| Command::new("sleep").arg("600").spawn().expect("starts")).collect();
        for (id, child) in children.iter().enumerate() {
            let pid = child.id();
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("readable");
            let start = start_tick(&stat).expect("known");
            assert!(ends.watch(id as u32, Process { pid, start }).expect("watched"));
            assert!(!ends.watch(9, Process { pid, start: start + 1 }).expect("looked at"));
        }
        children[1].kill().expect("killed");
        assert_eq!(ends.next().expect("an end"), 1);
        let pid = children[1].id();
        children[1].wait().expect("reaped");
        assert!(!ends.watch(9, Process { pid, start: 1 }).expect("looked at"));
        children[0].kill().expect("killed");
        assert_eq!(ends.next().expect("an end"), 0);
        children[0].wait().expect("reaped");
        assert!(ends.lock().is_empty());
    }
}
