//! The relayed connections, and the interruption of blocked ones.

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use sys::poll::{self, GONE};

/// The connections that the server makes to a guest (`runtime/host/connections.ts`), with room for probes and for those whose guest
/// holds up their end. A sandbox that blocks its relays takes no more threads than this.
pub const RELAYS_PER_GUEST_MAX: usize = 1024 + 64;
/// For all guests together: leaves threads and descriptors to programs.
const RELAYS_MAX: usize = 16_384;
/// A cut waits this long for connections to end, and interrupts the others after each pause.
const CUT_TIMEOUT: Duration = Duration::from_secs(2);
const CUT_PAUSE: Duration = Duration::from_millis(5);
/// An error number (errno(3)).
const EBUSY: i32 = 16;

/// The connections that are relayed now.
#[derive(Default)]
pub struct Relays {
    table: Mutex<Table>,
    removed: Condvar,
}

#[derive(Default)]
struct Table {
    last_id: u64,
    relays: HashMap<u64, Relay>,
    /// How many there are to each guest.
    counts: HashMap<PathBuf, usize>,
}

struct Relay {
    path: PathBuf,
    server: Arc<UnixStream>,
    /// Absent until it is connected.
    guest: Option<Arc<UnixStream>>,
    /// The thread, which is alive while this is in the table.
    thread: i32,
    /// Whether the server had closed its side when the relay was last looked at.
    was_closed: bool,
}

/// Removes its relay from the table when it is dropped.
pub struct Entry<'a> {
    relays: &'a Relays,
    id: u64,
}

impl Relays {
    /// `None` when there are too many, to this guest or altogether.
    pub fn register(&self, path: &Path, server: &Arc<UnixStream>) -> Option<Entry<'_>> {
        let mut table = self.lock();
        if table.relays.len() >= RELAYS_MAX {
            return None;
        }
        let count = table.counts.entry(path.to_owned()).or_insert(0);
        if *count >= RELAYS_PER_GUEST_MAX {
            return None;
        }
        *count += 1;
        table.last_id += 1;
        let id = table.last_id;
        let (path, server, thread) = (path.to_owned(), Arc::clone(server), sys::thread_id());
        table.relays.insert(id, Relay { path, server, guest: None, thread, was_closed: false });
        Some(Entry { relays: self, id })
    }

    /// Ends the connections to a guest, whatever they still carry. Returns the error number of the answer.
    pub fn cut(&self, path: &Path) -> i32 {
        let until = Instant::now() + CUT_TIMEOUT;
        let mut table = self.lock();
        while table.counts.contains_key(path) {
            if Instant::now() >= until {
                return EBUSY;
            }
            for relay in table.relays.values().filter(|relay| relay.path == path) {
                let _ = relay.server.shutdown(Shutdown::Both);
                let _ = relay.guest.as_ref().map(|guest| guest.shutdown(Shutdown::Both));
                sys::interrupt_thread(relay.thread);
            }
            table = self.removed.wait_timeout(table, CUT_PAUSE).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        0
    }

    /// A thread that is blocked in the close of a sandbox's descriptor does not notice the server's close; a signal ends its wait.
    pub fn interrupt_blocked(&self) {
        for relay in self.lock().relays.values_mut() {
            let [found] = poll::wait([(&*relay.server, GONE)], Some(Duration::ZERO));
            let is_closed = found & GONE != 0;
            if is_closed && relay.was_closed {
                sys::interrupt_thread(relay.thread);
            }
            relay.was_closed = is_closed;
        }
    }

    fn close_guest(&self, id: u64) {
        let guest = self.lock().relays.get_mut(&id).and_then(|relay| relay.guest.take());
        drop(guest);
    }

    #[cfg(test)]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.lock().counts.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Entry<'_> {
    pub fn connected(&self, guest: UnixStream) -> Arc<UnixStream> {
        let guest = Arc::new(guest);
        if let Some(relay) = self.relays.lock().relays.get_mut(&self.id) {
            relay.guest = Some(Arc::clone(&guest));
        }
        guest
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        // Without the lock, because a close can block. It can be interrupted while the relay is in the table.
        self.relays.close_guest(self.id);
        let mut table = self.relays.lock();
        if let Some(relay) = table.relays.remove(&self.id) {
            if let Some(count) = table.counts.get_mut(&relay.path) {
                *count -= 1;
                if *count == 0 {
                    table.counts.remove(&relay.path);
                }
            }
        }
        self.relays.removed.notify_all();
    }
}
