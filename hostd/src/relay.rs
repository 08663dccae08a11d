//! Relays connections between the server and guests. Root in a sandbox may answer in the place of its guest, and can send descriptors over
//! the unix socket. The kernel closes descriptors that nobody takes in the thread that reads, and the close of a TCP socket with unsent data
//! waits as long as its sender has chosen (SO_LINGER of socket(7)). In a relay that blocks the thread of that one connection alone. Since
//! Linux 6.16 the kernel refuses such messages at their sender (SO_PASSRIGHTS).
//!
//! The server connects to the relay's own socket, sends one frame with a request and reads `error:i32`, big-endian, an error number or 0.
//! After 0 for `connect-guest` the bytes of both sides follow as they come. `cut-guest` ends all connections to a guest and answers 0 when
//! none is left.
//!
//! Each side hears the end of what the other sends. When the server closes its side, what it has sent is still delivered; when
//! the guest closes its side, the connection ends. An error of one side is an end to the other.

mod direction;
mod table;

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::protocol::fields::Fields;
use crate::protocol::frame;
use crate::protocol::request::Resident;
use direction::Direction;
use sys::poll::{self, GONE, POLLIN, POLLOUT};
use sys::socket::{bind_private, connect_without_rights};
use sys::{Error, EINVAL, ENOBUFS};
use table::Relays;

/// An operation, and the path of a unix socket, of which JSON may escape each byte.
const REQUEST_BYTES_MAX: usize = 1024;
const BUFFER_BYTES: usize = 64 * 1024;
const STACK_BYTES: usize = 2 * BUFFER_BYTES;
/// Threads that wait for a connection; a thread above this bound ends.
const IDLE_MAX: usize = 8;
/// A relay that has not noticed the server's close for this long is held up.
const HELD_UP_AFTER: Duration = Duration::from_secs(1);
/// Bound of the delivery to the guest after the server has closed.
const LINGER: Duration = Duration::from_secs(5);
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Makes the relay's socket, for root alone, and serves it from threads of its own.
pub fn serve(socket: &Path) -> Result<(), Error> {
    sys::raise_file_limit(u64::MAX);
    sys::let_signals_interrupt();
    let listener = bind_private(socket).map_err(|error| Error::io("bind", socket.display(), error))?;
    let workers = Arc::new(Workers { listener, relays: Relays::default(), idle: AtomicUsize::new(0) });
    workers.start_one()?;
    let look = move || loop {
        thread::sleep(HELD_UP_AFTER);
        workers.relays.interrupt_blocked();
        if workers.idle.load(Ordering::SeqCst) == 0 {
            let _ = workers.start_one();
        }
    };
    start("held-up", look)
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let started = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work);
    started.map(drop).map_err(|error| Error::new(format!("a thread: {error}")))
}

/// Threads that take connections. One is always idle, for the next connection: the thread that takes a connection makes sure of it. Some
/// more stay idle, because a new thread costs more.
struct Workers {
    listener: UnixListener,
    relays: Relays,
    idle: AtomicUsize,
}

impl Workers {
    fn start_one(self: &Arc<Workers>) -> Result<(), Error> {
        let workers = Arc::clone(self);
        self.idle.fetch_add(1, Ordering::SeqCst);
        let started = start("relay", move || workers.work());
        if started.is_err() {
            self.idle.fetch_sub(1, Ordering::SeqCst);
        }
        started
    }

    fn work(self: Arc<Workers>) {
        loop {
            match self.listener.accept() {
                Ok((server, _)) => {
                    if self.idle.fetch_sub(1, Ordering::SeqCst) == 1 {
                        let _ = self.start_one();
                    }
                    let _ = relay(server, &self.relays);
                    if self.idle.fetch_add(1, Ordering::SeqCst) >= IDLE_MAX {
                        self.idle.fetch_sub(1, Ordering::SeqCst);
                        return;
                    }
                }
                // No descriptor is free until a relay ends.
                Err(_) => thread::sleep(ACCEPT_PAUSE),
            }
        }
    }
}

fn relay(mut server: UnixStream, relays: &Relays) -> io::Result<()> {
    let request = match frame::read(&mut server, 1..=REQUEST_BYTES_MAX)? {
        Some(request) => request,
        None => return Ok(()),
    };
    match Fields::parse(&request).and_then(Resident::parse) {
        Ok(Resident::ConnectGuest(path)) => connect(&path, server, relays),
        Ok(Resident::CutGuest(path)) => answer(&server, relays.cut(&path)),
        Ok(_) => answer(&server, EINVAL),
        // The other side does not speak the protocol.
        Err(_) => Ok(()),
    }
}

fn connect(path: &Path, server: UnixStream, relays: &Relays) -> io::Result<()> {
    let server = Arc::new(server);
    let entry = match relays.register(path, &server) {
        Some(entry) => entry,
        None => return answer(&server, ENOBUFS),
    };
    match connect_without_rights(path) {
        Ok(guest) => {
            let guest = entry.connected(guest);
            answer(&server, 0)?;
            server.set_nonblocking(true)?;
            exchange(&server, &guest);
            // The server's side first: the close of the guest's side may take its time.
            server.shutdown(Shutdown::Both)
        }
        // The path is invalid: the other side does not speak the protocol.
        Err(error) => error.raw_os_error().map_or(Ok(()), |number| answer(&server, number)),
    }
}

fn answer(mut server: &UnixStream, error: i32) -> io::Result<()> {
    server.write_all(&error.to_be_bytes())
}

/// Carries bytes both ways until both directions have ended or one side has closed.
fn exchange(server: &UnixStream, guest: &UnixStream) {
    let mut asked = Direction::new(server, guest);
    let mut answered = Direction::new(guest, server);
    let mut buffer = [0; BUFFER_BYTES];
    while !(asked.ended && answered.ended) {
        // A side that takes nothing may still close. While the guest may send, its close shows at the end of what it sent.
        let until_closed = if answered.ended { GONE } else { 0 };
        let [of_server, of_guest] = poll::wait(
            [
                (server, asked.reads() | answered.writes() | GONE),
                (guest, answered.reads() | asked.writes() | until_closed),
            ],
            None,
        );
        if of_server & GONE != 0 {
            // A guest that has ended its answer closes in its own time, and may read until then.
            let limit = if answered.ended { None } else { Some(LINGER) };
            // Its later bytes have no reader.
            let _ = guest.shutdown(Shutdown::Read);
            return asked.deliver(&mut buffer, limit);
        }
        if of_server & POLLIN != 0 || of_guest & (POLLOUT | GONE) != 0 {
            asked.carry(&mut buffer);
        }
        if of_guest & (POLLIN | GONE) != 0 || of_server & POLLOUT != 0 {
            answered.carry(&mut buffer);
        }
        if answered.ended && of_guest & GONE != 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
