use super::table::RELAYS_PER_GUEST_MAX;
use super::*;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::io::AsRawFd;
use std::sync::mpsc;
use std::time::Instant;
use sys::channel::send_with_socket;
use sys::socket::set_option;
use sys::EBUSY;

const SO_SNDBUF: i32 = 7;
const SO_LINGER: i32 = 13;

/// Sends a descriptor behind more bytes than the server takes, and closes it here: the reader then has the last copy.
fn answer_with(guest: &mut UnixStream, descriptor: TcpStream) {
    guest.set_nonblocking(true).expect("is set");
    let mut refusals = 0;
    while refusals < 5 {
        match guest.write(&[0; 65_536]) {
            Ok(1..) => refusals = 0,
            _ => {
                refusals += 1;
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
    set_option(guest, SO_SNDBUF, &[1 << 20]).expect("is set");
    send_with_socket(guest.as_raw_fd(), b"x", &descriptor).expect("sends");
}

/// A socket whose close waits for a minute, and the peer that must live on for that.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let mut source = TcpStream::connect(listener.local_addr().expect("is bound")).expect("connects");
    let (sink, _) = listener.accept().expect("accepts");
    source.set_nonblocking(true).expect("is set");
    while source.write(&[0; 65_536]).is_ok() {}
    set_option(&source, SO_LINGER, &[1, 60]).expect("is set");
    (source, sink)
}

/// The outer ends of a relayed connection whose relay runs in a thread.
fn relayed(relays: &Arc<Relays>) -> (UnixStream, UnixStream) {
    let (server, of_server) = UnixStream::pair().expect("makes a pair");
    let (guest, of_guest) = UnixStream::pair().expect("makes a pair");
    let relays = Arc::clone(relays);
    let (registered, is_registered) = mpsc::channel();
    thread::spawn(move || {
        let of_server = Arc::new(of_server);
        let entry = relays.register(Path::new("/guest"), &of_server).expect("has room");
        registered.send(()).expect("is awaited");
        let of_guest = entry.connected(of_guest);
        of_server.set_nonblocking(true).expect("is set");
        of_guest.set_nonblocking(true).expect("is set");
        exchange(&of_server, &of_guest);
        let _ = of_server.shutdown(Shutdown::Both);
    });
    is_registered.recv().expect("is registered");
    (server, guest)
}

fn read_all(mut stream: &UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

/// Reads until nothing comes for a while.
fn read_what_there_is(server: &mut UnixStream) {
    server.set_nonblocking(false).expect("is set");
    server.set_read_timeout(Some(Duration::from_millis(100))).expect("is set");
    while matches!(server.read(&mut [0; 65_536]), Ok(1..)) {}
}

fn await_none(relays: &Relays) {
    let until = Instant::now() + Duration::from_secs(30);
    while !relays.paths().is_empty() {
        assert!(Instant::now() < until, "a relay is held up");
        thread::sleep(Duration::from_millis(10));
        relays.interrupt_blocked();
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
    // On a busy machine their threads may not have ended when the first cut gives up.
    let mut error = EBUSY;
    while error == EBUSY {
        error = relays.cut(Path::new("/guest"));
    }
    assert_eq!(error, 0);
    assert_eq!(relays.paths(), [Path::new("/other")]);
    drop(other);
    assert_eq!(relays.cut(Path::new("/other")), 0);
}

#[test]
fn a_guest_that_is_not_there_is_reported_by_the_number_of_the_error() {
    let (mut server, of_server) = UnixStream::pair().expect("makes a pair");
    let request = br#"{"op":"connect-guest","path":"/no/such/guest.sock"}"#;
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
