//! Relays connections between the server and guests. Root in a sandbox may answer in the place of its guest, and a unix socket
//! carries descriptors: the kernel closes those that nobody takes in the thread that reads, and the close of a TCP socket with
//! unsent data waits as long as its sender has chosen (SO_LINGER of socket(7)). Here that holds up one thread, of that one
//! connection. Where the kernel can, it refuses such messages at their sender (SO_PASSRIGHTS, Linux 6.16).
//!
//! The server connects to the relay's own socket, sends one frame (`frame.rs`) and reads `error:i32`, big-endian, an error
//! number or 0:
//!
//!     connect  op:u8 = 0, the absolute path of a guest's socket; after 0 the bytes of both sides follow as they come
//!     cut      op:u8 = 1, such a path: ends all connections to it; 0 when there is none any more
//!
//! Each side hears the end of what the other sends. When the server closes its side, what it has sent is still delivered; when
//! the guest closes its side, the connection ends. An error of one side is an end to the other.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::frame;
use crate::sys::poll::{self, GONE, IN, OUT};
use crate::sys::socket::{bind_private, connect_without_rights};
use crate::sys::{self, Error};

/// An operation, and a path of a unix socket, which has no more.
const REQUEST_BYTES_MAX: usize = 1 + 107;
const CONNECT: u8 = 0;
const CUT: u8 = 1;
/// Twice what a guest serves. A sandbox that holds up its relays has no more threads than this.
const RELAYS_PER_GUEST_MAX: usize = 1024;
/// Of all guests together: threads and descriptors are left for programs.
const RELAYS_MAX: usize = 16_384;
const BUFFER_BYTES: usize = 64 * 1024;
const STACK_BYTES: usize = 2 * BUFFER_BYTES;
/// Threads that wait for a connection; more of them end.
const IDLE_MAX: usize = 8;
/// How often one direction of a connection is served before the other has its chance.
const READS_IN_A_ROW: usize = 16;
/// A relay that has not noticed for so long that the server has closed its side is held up.
const HELD_UP_AFTER: Duration = Duration::from_secs(1);
/// How long what the server sent before it closed may take to reach the guest.
const LINGER: Duration = Duration::from_secs(5);
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// How long a cut waits for connections to end, and how often it interrupts those that do not.
const CUT_TIMEOUT: Duration = Duration::from_secs(2);
const CUT_PAUSE: Duration = Duration::from_millis(5);
/// Error numbers of the answer (errno(3)).
const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENOBUFS: i32 = 105;

/// Makes the relay's socket, for root alone, and serves it from threads of its own.
pub fn serve(socket: &Path) -> Result<(), Error> {
    sys::raise_file_limit();
    sys::let_signals_interrupt();
    let workers =
        Arc::new(Workers { listener: bind_private(socket)?, relays: Relays::default(), idle: AtomicUsize::new(0) });
    workers.start_one()?;
    let look = move || loop {
        thread::sleep(HELD_UP_AFTER);
        workers.relays.interrupt_held_up();
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

/// Threads that take connections, one after the other. One is always idle, for the next connection: whoever takes one looks
/// for that. Some more stay, as a thread that is there is cheaper than a new one.
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
    let mut request = match frame::read(&mut server, 1..=REQUEST_BYTES_MAX)? {
        Some(request) => request,
        None => return Ok(()),
    };
    let path = PathBuf::from(OsString::from_vec(request.split_off(1)));
    match request[0] {
        CONNECT => connect(&path, server, relays),
        CUT => answer(&server, relays.cut(&path)),
        _ => answer(&server, EINVAL),
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
            // Before the guest's side is closed, which may take its time.
            server.shutdown(Shutdown::Both)
        }
        Err(error) => answer(&server, error.raw_os_error().unwrap_or(EAGAIN)),
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
            // What it still writes nobody reads.
            let _ = guest.shutdown(Shutdown::Read);
            return asked.deliver(&mut buffer, limit);
        }
        if of_server & IN != 0 || of_guest & (OUT | GONE) != 0 {
            asked.carry(&mut buffer);
        }
        if of_guest & (IN | GONE) != 0 || of_server & OUT != 0 {
            answered.carry(&mut buffer);
        }
        if answered.ended && of_guest & GONE != 0 {
            return;
        }
    }
}

/// Bytes on their way from one side to the other.
struct Direction<'a> {
    from: &'a UnixStream,
    to: &'a UnixStream,
    /// Read, and not taken yet.
    pending: Vec<u8>,
    /// Nothing more comes, or nobody takes it.
    ended: bool,
}

impl<'a> Direction<'a> {
    fn new(from: &'a UnixStream, to: &'a UnixStream) -> Direction<'a> {
        Direction { from, to, pending: Vec::new(), ended: false }
    }

    fn reads(&self) -> i16 {
        match !self.ended && self.pending.is_empty() {
            true => IN,
            false => 0,
        }
    }

    fn writes(&self) -> i16 {
        match self.pending.is_empty() {
            true => 0,
            false => OUT,
        }
    }

    /// Moves what there is, without waiting. What is not taken at once stays pending, and nothing more is read meanwhile.
    fn carry(&mut self, buffer: &mut [u8]) {
        if !self.pending.is_empty() {
            let pending = std::mem::take(&mut self.pending);
            self.give(&pending);
        }
        for _ in 0..READS_IN_A_ROW {
            if self.reads() == 0 {
                return;
            }
            let mut from = self.from;
            match from.read(buffer) {
                Ok(0) => self.end(),
                Ok(count) => {
                    self.give(&buffer[..count]);
                    if count < buffer.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.end(),
            }
        }
    }

    fn give(&mut self, bytes: &[u8]) {
        let mut taken = 0;
        while taken < bytes.len() {
            let mut to = self.to;
            match to.write(&bytes[taken..]) {
                Ok(count) => taken += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.pending = bytes[taken..].to_vec();
                    return;
                }
                // What the other direction still carries goes on.
                Err(_) => return self.end(),
            }
        }
    }

    fn end(&mut self) {
        self.ended = true;
        let _ = self.to.shutdown(Shutdown::Write);
    }

    /// Hands over what its sender has sent before it closed, until the receiver has it all or closes.
    fn deliver(&mut self, buffer: &mut [u8], limit: Option<Duration>) {
        let until = limit.map(|limit| Instant::now() + limit);
        loop {
            self.carry(buffer);
            let remaining = until.map(|until| until.saturating_duration_since(Instant::now()));
            if self.ended || remaining.map_or(false, |remaining| remaining.is_zero()) {
                return;
            }
            // A sender that has closed never keeps a read waiting.
            if !self.pending.is_empty() {
                poll::wait([(self.to, OUT)], remaining);
            }
        }
    }
}

/// The connections that are relayed now.
#[derive(Default)]
struct Relays {
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
struct Entry<'a> {
    relays: &'a Relays,
    id: u64,
}

impl Relays {
    /// `None` when there are too many, to this guest or altogether.
    fn register(&self, path: &Path, server: &Arc<UnixStream>) -> Option<Entry<'_>> {
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
    fn cut(&self, path: &Path) -> i32 {
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

    /// A thread that closes a descriptor for somebody inside does not notice the server's close; a signal ends its wait.
    fn interrupt_held_up(&self) {
        for relay in self.lock().relays.values_mut() {
            let [found] = poll::wait([(&relay.server, GONE)], Some(Duration::ZERO));
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

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Entry<'_> {
    fn connected(&self, guest: UnixStream) -> Arc<UnixStream> {
        let guest = Arc::new(guest);
        if let Some(relay) = self.relays.lock().relays.get_mut(&self.id) {
            relay.guest = Some(Arc::clone(&guest));
        }
        guest
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        // Without the lock, as a close may take its time; it can be interrupted while the relay is in the table.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::raw::{c_int, c_void};
    use std::os::unix::io::AsRawFd;

    extern "C" {
        fn sendmsg(fd: c_int, message: *const Message, flags: c_int) -> isize;
        fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: u32) -> c_int;
    }

    #[repr(C)]
    struct Message {
        name: *const c_void,
        name_length: u32,
        parts: *const Part,
        parts_count: usize,
        control: *const Rights,
        control_length: usize,
        flags: c_int,
    }

    #[repr(C)]
    struct Part {
        bytes: *const u8,
        length: usize,
    }

    /// A `cmsghdr` with one descriptor (cmsg(3)).
    #[repr(C)]
    struct Rights {
        length: usize,
        level: c_int,
        kind: c_int,
        fd: c_int,
        padding: c_int,
    }

    /// Sends a descriptor behind more than the server takes, and closes it here: who reads on has the last one.
    fn answer_with(guest: &mut UnixStream, descriptor: TcpStream) {
        guest.set_nonblocking(true).expect("is set");
        let mut refusals = 0;
        while refusals < 5 {
            match guest.write(&[0; 65_536]) {
                Ok(_) => refusals = 0,
                Err(_) => {
                    refusals += 1;
                    thread::sleep(Duration::from_millis(5));
                }
            }
        }
        let bytes: c_int = 1 << 20;
        assert_eq!(unsafe { setsockopt(guest.as_raw_fd(), 1, 7, (&bytes as *const c_int).cast(), 4) }, 0);
        send_descriptor(guest, &descriptor);
    }

    fn send_descriptor(stream: &UnixStream, descriptor: &impl AsRawFd) {
        let part = Part { bytes: b"x".as_ptr(), length: 1 };
        let rights = Rights { length: 20, level: 1, kind: 1, fd: descriptor.as_raw_fd(), padding: 0 };
        let name = std::ptr::null();
        let message = Message {
            name,
            name_length: 0,
            parts: &part,
            parts_count: 1,
            control: &rights,
            control_length: 24,
            flags: 0,
        };
        assert_eq!(unsafe { sendmsg(stream.as_raw_fd(), &message, 0) }, 1);
    }

    /// A socket whose close waits for a minute, and the peer that must live on for that.
    fn lingering() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let mut source = TcpStream::connect(listener.local_addr().expect("is bound")).expect("connects");
        let (sink, _) = listener.accept().expect("accepts");
        source.set_nonblocking(true).expect("is set");
        while source.write(&[0; 65_536]).is_ok() {}
        let linger: [c_int; 2] = [1, 60];
        assert_eq!(unsafe { setsockopt(source.as_raw_fd(), 1, 13, linger.as_ptr().cast(), 8) }, 0);
        (source, sink)
    }

    /// The outer ends of a relayed connection whose relay runs in a thread.
    fn relayed(relays: &Arc<Relays>) -> (UnixStream, UnixStream) {
        let (server, of_server) = UnixStream::pair().expect("makes a pair");
        let (guest, of_guest) = UnixStream::pair().expect("makes a pair");
        let relays = Arc::clone(relays);
        thread::spawn(move || {
            let of_server = Arc::new(of_server);
            let entry = relays.register(Path::new("/guest"), &of_server).expect("has room");
            let of_guest = entry.connected(of_guest);
            of_server.set_nonblocking(true).expect("is set");
            of_guest.set_nonblocking(true).expect("is set");
            exchange(&of_server, &of_guest);
            let _ = of_server.shutdown(Shutdown::Both);
        });
        (server, guest)
    }

    fn read_all(mut stream: &UnixStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        bytes
    }

    /// Until nothing comes for a while.
    fn read_what_there_is(server: &mut UnixStream) {
        server.set_nonblocking(false).expect("is set");
        server.set_read_timeout(Some(Duration::from_millis(100))).expect("is set");
        while matches!(server.read(&mut [0; 65_536]), Ok(1..)) {}
    }

    fn await_none(relays: &Relays) {
        let until = Instant::now() + Duration::from_secs(30);
        while !relays.lock().relays.is_empty() {
            assert!(Instant::now() < until, "a relay is held up");
            thread::sleep(Duration::from_millis(10));
            relays.interrupt_held_up();
        }
    }

    #[test]
    fn bytes_and_the_ends_of_both_directions_are_passed_on() {
        let (mut server, mut guest) = relayed(&Arc::default());
        server.write_all(b"question").expect("writes");
        server.shutdown(Shutdown::Write).expect("ends");
        assert_eq!(read_all(&guest), b"question");
        guest.write_all(b"answer").expect("writes");
        drop(guest);
        assert_eq!(read_all(&server), b"answer");
    }

    #[test]
    fn a_side_that_takes_nothing_holds_up_only_what_is_for_it() {
        let (mut server, mut guest) = relayed(&Arc::default());
        server.set_nonblocking(true).expect("is set");
        let mut sent = 0;
        for _ in 0..100 {
            sent += server.write(&[7; 65_536]).unwrap_or(0);
            thread::sleep(Duration::from_millis(1));
        }
        server.set_nonblocking(false).expect("is set");
        guest.write_all(b"still here").expect("writes");
        let mut heard = [0; 10];
        server.read_exact(&mut heard).expect("reads");
        assert_eq!(&heard, b"still here");
        drop(server);
        assert_eq!(read_all(&guest), vec![7; sent]);
    }

    #[test]
    fn what_a_guest_has_answered_arrives_though_it_takes_no_more() {
        let (mut server, mut guest) = relayed(&Arc::default());
        guest.write_all(&[7; 100_000]).expect("writes");
        drop(guest);
        let _ = server.write_all(b"too late");
        assert_eq!(read_all(&server).len(), 100_000);
    }

    #[test]
    fn a_guest_that_ends_its_answer_still_reads_and_its_close_ends_the_connection() {
        let relays = Arc::default();
        let (mut server, mut guest) = relayed(&relays);
        guest.shutdown(Shutdown::Write).expect("ends");
        assert_eq!(read_all(&server), b"");
        server.write_all(b"more").expect("writes");
        let mut heard = [0; 4];
        guest.read_exact(&mut heard).expect("reads");
        drop(guest);
        await_none(&relays);
        assert!(server.write_all(b"too late").is_err());
    }

    #[test]
    fn what_was_sent_before_a_close_reaches_a_guest_that_has_ended_its_answer() {
        let (mut server, guest) = relayed(&Arc::default());
        guest.shutdown(Shutdown::Write).expect("ends");
        let sender = thread::spawn(move || server.write_all(&[7; 600_000]).map(|()| drop(server)));
        thread::sleep(Duration::from_millis(50));
        assert_eq!(read_all(&guest).len(), 600_000);
        sender.join().expect("ends").expect("writes");
    }

    #[test]
    fn a_cut_ends_the_connections_to_one_guest_whatever_they_carry() {
        sys::let_signals_interrupt();
        let relays = Arc::default();
        let (mut full, _silent) = relayed(&relays);
        full.set_nonblocking(true).expect("is set");
        while full.write(&[7; 65_536]).is_ok() {}
        drop(full);
        let (mut held_up, mut guest) = relayed(&relays);
        let (source, _sink) = lingering();
        answer_with(&mut guest, source);
        read_what_there_is(&mut held_up);
        let other = relays.register(Path::new("/other"), &Arc::new(UnixStream::pair().expect("makes a pair").0));
        assert_eq!(relays.cut(Path::new("/guest")), 0);
        assert_eq!(relays.lock().counts.keys().collect::<Vec<_>>(), [Path::new("/other")]);
        drop(other);
        assert_eq!(relays.cut(Path::new("/other")), 0);
    }

    #[test]
    fn a_guest_that_is_not_there_is_reported_by_the_number_of_the_error() {
        let (mut server, of_server) = UnixStream::pair().expect("makes a pair");
        let request = b"\0/no/such/guest.sock";
        server.write_all(&(request.len() as u32).to_be_bytes()).expect("writes");
        server.write_all(request).expect("writes");
        relay(of_server, &Relays::default()).expect("answers");
        assert_eq!(read_all(&server), 2i32.to_be_bytes());
    }

    #[test]
    fn a_guest_has_a_bounded_number_of_relays_and_leaves_those_of_others_alone() {
        let relays = Relays::default();
        let (server, _peer) = UnixStream::pair().expect("makes a pair");
        let server = Arc::new(server);
        let register = |path| relays.register(Path::new(path), &server);
        let mut entries: Vec<_> = (0..RELAYS_PER_GUEST_MAX).map(|_| register("/a").expect("has room")).collect();
        assert!(register("/a").is_none());
        assert!(register("/b").is_some());
        entries.pop();
        assert!(register("/a").is_some());
    }

    #[test]
    fn a_descriptor_whose_close_waits_holds_up_its_own_relay_alone_until_the_server_has_gone() {
        sys::let_signals_interrupt();
        let relays = Arc::new(Relays::default());
        let (mut server, mut guest) = relayed(&relays);
        let (source, _sink) = lingering();
        answer_with(&mut guest, source);
        read_what_there_is(&mut server);

        let (mut other_server, other_guest) = relayed(&relays);
        other_server.write_all(b"question").expect("writes");
        drop(other_server);
        assert_eq!(read_all(&other_guest), b"question");

        drop(server);
        await_none(&relays);
    }
}
