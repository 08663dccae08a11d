//! Relays connections between the server and guests. Whoever is root in a sandbox may answer in the place of its guest, and a
//! unix socket carries descriptors: the kernel closes those that nobody takes in the thread that reads, and the close of a TCP
//! socket with unsent data waits as long as its sender has chosen (SO_LINGER of socket(7)). Here that holds up one thread, of
//! that one connection. Where the kernel can, it refuses such messages at their sender (SO_PASSRIGHTS, Linux 6.16).
//!
//! The server connects to the relay's own socket, sends one frame (`frame.rs`) with the absolute path of a guest's socket, and
//! reads `error:i32`, the error number of connect(2), big-endian. After 0 the bytes of both sides follow as they come, their
//! ends likewise. A side that closes ends the connection of the other.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::frame;
use crate::sys::poll::{self, GONE, IN, OUT};
use crate::sys::socket::{bind_private, connect_without_rights};
use crate::sys::{self, Error};

/// A path of a unix socket has less.
const PATH_BYTES_MAX: usize = 107;
/// Twice what a guest serves. A sandbox that holds up its relays has no more threads than this.
const RELAYS_PER_GUEST_MAX: usize = 1024;
const BUFFER_BYTES: usize = 64 * 1024;
const STACK_BYTES: usize = 2 * BUFFER_BYTES;
/// How often one direction of a connection is served before the other has its chance.
const READS_IN_A_ROW: usize = 16;
/// How long a relay may take to notice that the server has gone before it is taken to be held up.
const HELD_UP_AFTER: Duration = Duration::from_secs(1);
/// How long what the server has sent before it went may take to reach the guest.
const LINGER: Duration = Duration::from_secs(5);
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// Error numbers of the answer (errno(3)).
const EAGAIN: i32 = 11;
const EUSERS: i32 = 87;

/// Makes the relay's socket, for root alone, and serves it from a thread of its own.
pub fn serve(socket: &Path) -> Result<(), Error> {
    sys::raise_file_limit();
    sys::let_signals_interrupt();
    let listener = bind_private(socket)?;
    let relays = Arc::new(Relays::default());
    let watched = Arc::clone(&relays);
    start("relays", move || accept(&listener, &relays))?;
    start("held-up", move || loop {
        thread::sleep(HELD_UP_AFTER);
        watched.interrupt_held_up();
    })
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let started = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work);
    started.map(drop).map_err(|error| Error::new(format!("a thread: {error}")))
}

fn accept(listener: &UnixListener, relays: &Arc<Relays>) {
    loop {
        match listener.accept() {
            Ok((server, _)) => {
                let relays = Arc::clone(relays);
                // Without a thread the server sees its connection closed.
                let _ = start("relay", move || {
                    let _ = relay(server, &relays);
                });
            }
            // No descriptor is free until a relay ends.
            Err(_) => thread::sleep(ACCEPT_PAUSE),
        }
    }
}

fn relay(mut server: UnixStream, relays: &Relays) -> io::Result<()> {
    let path = match frame::read(&mut server, 1..=PATH_BYTES_MAX)? {
        Some(path) => PathBuf::from(OsString::from_vec(path)),
        None => return Ok(()),
    };
    let server = Arc::new(server);
    let _entry = match relays.enter(&path, &server) {
        Some(entry) => entry,
        None => return answer(&server, EUSERS),
    };
    match connect_without_rights(&path) {
        Ok(guest) => {
            answer(&server, 0)?;
            server.set_nonblocking(true)?;
            exchange(&server, &guest);
            // Told before the guest's side is closed, which may take its time.
            server.shutdown(Shutdown::Both)
        }
        Err(error) => answer(&server, error.raw_os_error().unwrap_or(EAGAIN)),
    }
}

fn answer(mut server: &UnixStream, error: i32) -> io::Result<()> {
    server.write_all(&error.to_be_bytes())
}

/// Carries bytes both ways until both have ended or one side has gone.
fn exchange(server: &UnixStream, guest: &UnixStream) {
    let mut asked = Direction::new(server, guest);
    let mut answered = Direction::new(guest, server);
    let mut buffer = [0; BUFFER_BYTES];
    while !(asked.ended && answered.ended) {
        // The server is always looked at: its end is that of the connection, whatever the guest takes or sends.
        let of_both = [(server, asked.reads() | answered.writes() | GONE), (guest, answered.reads() | asked.writes())];
        let [of_server, of_guest] = poll::wait(of_both, None);
        if of_server & GONE != 0 {
            return asked.deliver(&mut buffer);
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

    /// Hands over what was sent before its sender has gone, for a while.
    fn deliver(&mut self, buffer: &mut [u8]) {
        let until = Instant::now() + LINGER;
        loop {
            self.carry(buffer);
            let left = until.saturating_duration_since(Instant::now());
            if self.ended || left.is_zero() {
                return;
            }
            if self.writes() != 0 {
                poll::wait([(self.to, OUT)], Some(left));
            }
        }
    }
}

/// The connections that are relayed now.
#[derive(Default)]
struct Relays {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last_id: u64,
    relays: HashMap<u64, Relay>,
    /// How many there are to each guest.
    counts: HashMap<PathBuf, usize>,
}

struct Relay {
    server: Arc<UnixStream>,
    /// The thread, which is alive while this is in the table.
    thread: i32,
    /// The server had gone already when it was last looked at.
    left: bool,
}

/// Removes its relay from the table when it is dropped.
struct Entry<'a> {
    relays: &'a Relays,
    id: u64,
    path: PathBuf,
}

impl Relays {
    /// `None` when there are too many to this guest.
    fn enter(&self, path: &Path, server: &Arc<UnixStream>) -> Option<Entry<'_>> {
        let mut table = self.lock();
        let count = table.counts.entry(path.to_owned()).or_insert(0);
        if *count >= RELAYS_PER_GUEST_MAX {
            return None;
        }
        *count += 1;
        table.last_id += 1;
        let id = table.last_id;
        let relay = Relay { server: Arc::clone(server), thread: sys::thread_id(), left: false };
        table.relays.insert(id, relay);
        Some(Entry { relays: self, id, path: path.to_owned() })
    }

    /// A thread that closes a descriptor for somebody inside takes no notice of the server's end; a signal ends the wait.
    fn interrupt_held_up(&self) {
        for relay in self.lock().relays.values_mut() {
            let [found] = poll::wait([(&relay.server, GONE)], Some(Duration::ZERO));
            let gone = found & GONE != 0;
            if gone && relay.left {
                sys::interrupt_thread(relay.thread);
            }
            relay.left = gone;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut table = self.relays.lock();
        table.relays.remove(&self.id);
        if let Some(count) = table.counts.get_mut(&self.path) {
            *count -= 1;
            if *count == 0 {
                table.counts.remove(&self.path);
            }
        }
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
            let _entry = relays.enter(Path::new("/guest"), &of_server).expect("has room");
            of_server.set_nonblocking(true).expect("is set");
            of_guest.set_nonblocking(true).expect("is set");
            exchange(&of_server, &of_guest);
            of_server.shutdown(Shutdown::Both).expect("is connected");
            drop(of_guest);
        });
        (server, guest)
    }

    fn read_all(mut stream: &UnixStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        bytes
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
    fn a_guest_that_is_not_there_is_told_by_the_number_of_the_error() {
        let (mut server, of_server) = UnixStream::pair().expect("makes a pair");
        let path = b"/no/such/guest.sock";
        server.write_all(&(path.len() as u32).to_be_bytes()).expect("writes");
        server.write_all(path).expect("writes");
        relay(of_server, &Relays::default()).expect("answers");
        assert_eq!(read_all(&server), 2i32.to_be_bytes());
    }

    #[test]
    fn a_guest_has_a_bounded_number_of_relays_and_leaves_those_of_others_alone() {
        let relays = Relays::default();
        let (server, _peer) = UnixStream::pair().expect("makes a pair");
        let server = Arc::new(server);
        let enter = |path| relays.enter(Path::new(path), &server);
        let mut entries: Vec<_> = (0..RELAYS_PER_GUEST_MAX).map(|_| enter("/a").expect("has room")).collect();
        assert!(enter("/a").is_none());
        assert!(enter("/b").is_some());
        entries.pop();
        assert!(enter("/a").is_some());
    }

    #[test]
    fn a_descriptor_whose_close_waits_holds_up_its_own_relay_alone_until_the_server_has_gone() {
        sys::let_signals_interrupt();
        let relays = Arc::new(Relays::default());
        let (server, guest) = relayed(&relays);
        let (source, _sink) = lingering();
        send_descriptor(&guest, &source);
        drop(source);

        let (mut other_server, other_guest) = relayed(&relays);
        other_server.write_all(b"question").expect("writes");
        drop(other_server);
        assert_eq!(read_all(&other_guest), b"question");

        drop(server);
        let until = Instant::now() + Duration::from_secs(30);
        while !relays.lock().relays.is_empty() {
            assert!(Instant::now() < until, "the relay is held up");
            thread::sleep(Duration::from_millis(10));
            relays.interrupt_held_up();
        }
    }
}
