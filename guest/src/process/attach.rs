//! One attached client: output from an offset, and input, over one non-blocking connection.
//!
//! Output needs credit of the client, so a client that stops reading delays neither its own control frames nor other clients.
//! A process waits for the slowest of its attached clients as a writer waits for the reader of a pipe. A client that reads nothing for
//! too long meanwhile is let go: its output ends with a fault, and the process goes on.
//! Input is buffered up to one window, so a process that does not read its input delays neither acknowledgements nor credit.

mod input;

use crate::clock::Stopwatch;
use crate::process::log::Stream;
use crate::process::readers::ReaderId;
use crate::process::stdin_cursor::{Generation, Progress};
use crate::process::{Process, State, STEP_MAX};
use crate::protocol::fault::{Fault, Outcome};
use crate::protocol::frame::{self, kind};
use json::object;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use sys::{Event, PollFd, POLLERR, POLLHUP, POLLIN, POLLOUT};

const OUTPUT_BYTES: usize = 64 * 1024;
const RECEIVE_BYTES: usize = 64 * 1024;
/// Bound of the buffered input: the client sends no more until some was taken.
const INPUT_BYTES_MAX: usize = 2 * frame::PAYLOAD_BYTES_MAX;

pub struct Request<'a> {
    pub offset: u64,
    pub credit: u64,
    /// The name under which the client comes back after its connection ended.
    pub client: Option<&'a str>,
    /// The input offset of an unknown client.
    pub input_offset: u64,
    /// How long the client can hold the process back without reading.
    pub stall: Duration,
}

/// Counts as an attached client until it is dropped.
struct Subscription<'a> {
    process: &'a Process,
    name: Option<&'a str>,
    event: Arc<Event>,
    generation: Generation,
    reader: ReaderId,
}

impl<'a> Subscription<'a> {
    fn new(process: &'a Process, request: &Request<'a>) -> Outcome<(Subscription<'a>, Progress)> {
        let event = Arc::new(Event::new()?);
        let mut state = process.state();
        state.watch(&event);
        state.clients += 1;
        let start = request.offset.min(state.log.end());
        state.change_pauses(|pauses| pauses.join(request.client, start));
        let reader = state.change_readers(|readers| readers.add(start));
        let progress = state.stdin_cursors.join(request.client, request.input_offset);
        state.wake_supervisor();
        Ok((Subscription { process, name: request.client, event, generation: progress.generation, reader }, progress))
    }
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        let mut state = self.process.state();
        state.unwatch(&self.event);
        // The client has neither left nor paused: a dump or the end of its server has cut it off.
        let is_latest = state.stdin_cursors.holds(self.generation) && state.exit.is_none();
        if let (Some(name), Some(hold), true) = (self.name, state.readers.hold_of(self.reader), is_latest) {
            state.change_pauses(|pauses| pauses.cut(name, hold));
        }
        state.stdin_cursors.leave(self.generation);
        state.clients -= 1;
        state.change_readers(|readers| readers.remove(self.reader));
        state.wake_supervisor();
    }
}

struct Client<'a> {
    process: &'a Process,
    name: Option<&'a str>,
    generation: Generation,
    reader: ReaderId,
    cursor: u64,
    /// Sent output whose credit the client has not returned: it may be lost if the connection ends.
    unconfirmed: u64,
    /// How long the process has waited for this client alone since it last read.
    stalled: Duration,
    stall_max: Duration,
    /// The offset at which live output begins; absent after `replayed` was sent.
    replay_end: Option<u64>,
    credit: u64,
    finished: bool,
    /// The client was let go: it read nothing.
    is_late: bool,
    paused: bool,
    outgoing: Vec<u8>,
    sent: usize,
    incoming: Vec<u8>,
    input: Vec<u8>,
    input_ended: bool,
    taken: u64,
}

/// Serves one client until the process or the connection ends. `early` holds the bytes behind the request line.
pub fn attach(
    process: &Process,
    stream: &UnixStream,
    writer: &mut impl Write,
    early: &[u8],
    request: &Request,
) -> Outcome<()> {
    let (subscription, progress) = Subscription::new(process, request)?;
    let (end, input) = {
        let state = process.state();
        (state.log.end(), state.input.is_some())
    };
    let mut answer = vec![("ok", true.into()), ("input", input.into())];
    if request.client.is_some() {
        answer.extend([("taken", progress.taken.into()), ("inputEnded", progress.ended.into())]);
    }
    frame::write_line(writer, &object(answer))?;
    let mut client = Client {
        process,
        name: request.client,
        generation: progress.generation,
        reader: subscription.reader,
        cursor: request.offset.min(end),
        unconfirmed: 0,
        stalled: Duration::from_secs(0),
        stall_max: request.stall,
        replay_end: Some(end),
        credit: request.credit,
        finished: false,
        is_late: false,
        paused: false,
        outgoing: Vec::new(),
        sent: 0,
        incoming: early.to_vec(),
        input: Vec::new(),
        input_ended: progress.ended,
        taken: 0,
    };
    sys::set_nonblocking(stream)?;
    client.handle_frames()?;
    loop {
        if client.paused {
            return Ok(());
        }
        let input = client.open_input()?;
        if client.sent == client.outgoing.len() {
            if client.finished {
                process.state().taken |= !client.is_late;
                drop(subscription);
                return wait_for_close(stream);
            }
            client.next_output();
        }
        let stalls = client.stalls();
        let mut fds = vec![PollFd::new(&*subscription.event, POLLIN)];
        let sending = client.sent < client.outgoing.len();
        fds.push(PollFd::new(stream, if sending { POLLIN | POLLOUT } else { POLLIN }));
        if let Some(input) = &input {
            fds.push(PollFd::new(&**input, POLLOUT));
        }
        let mut stopwatch = Stopwatch::new();
        sys::poll(&mut fds, if stalls { Some(STEP_MAX) } else { None });
        if stalls {
            client.stall(stopwatch.next(STEP_MAX));
        }
        if fds[0].ready(POLLIN) {
            subscription.event.clear();
        }
        if fds[1].ready(POLLOUT) {
            client.send(stream)?;
        }
        if fds[1].ready(POLLIN | POLLHUP | POLLERR) && !client.receive(stream)? {
            return Ok(());
        }
        if let Some(input) = input.filter(|_| fds[2].ready(POLLOUT | POLLERR | POLLHUP)) {
            client.feed(&input)?;
        }
    }
}

/// The client may still be sending: a close with unread bytes would reset the connection before the client reads the exit.
fn wait_for_close(mut stream: &UnixStream) -> Outcome<()> {
    stream.shutdown(Shutdown::Write)?;
    let mut buffer = [0; 4096];
    loop {
        sys::poll(&mut [PollFd::new(stream, POLLIN)], None);
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Err(error.into())
            }
            _ => {}
        }
    }
}

impl<'a> Client<'a> {
    /// Prepares the next frames to send, if any.
    fn next_output(&mut self) {
        self.outgoing.clear();
        self.sent = 0;
        if self.taken > 0 {
            frame::push(&mut self.outgoing, kind::TAKEN, &self.taken.to_be_bytes(), &[]);
            self.taken = 0;
        }
        let mut state = self.process.state();
        let replay_end = self.replay_end.unwrap_or(u64::MAX);
        let before_replay_end = replay_end.saturating_sub(self.cursor);
        let max = (OUTPUT_BYTES as u64).min(before_replay_end).min(self.credit) as usize;
        let next = state.log.read(self.cursor, max);
        match next {
            // The cursor has reached the end of the replay, or the rest before it was dropped.
            _ if self.replay_end.is_some()
                && (before_replay_end == 0 || next.map_or(true, |it| it.1 >= replay_end)) =>
            {
                self.cursor = self.cursor.max(replay_end);
                frame::push(&mut self.outgoing, kind::REPLAYED, &self.cursor.to_be_bytes(), &[]);
                self.replay_end = None;
                // The client has caught up.
                if let Some(name) = self.name.filter(|_| state.pauses.any()) {
                    state.change_pauses(|pauses| pauses.end(name));
                }
            }
            Some((_, _, [])) => {} // No credit.
            Some((stream, offset, data)) => {
                // Dropped output may have moved the start towards the end of the replay.
                let data = &data[..data.len().min(replay_end.saturating_sub(offset) as usize)];
                let kind = if stream == Stream::Stdout { kind::STDOUT } else { kind::STDERR };
                frame::push(&mut self.outgoing, kind, &offset.to_be_bytes(), data);
                self.cursor = offset + data.len() as u64;
                self.credit -= data.len() as u64;
                self.unconfirmed += data.len() as u64;
                self.stalled = Duration::from_secs(0);
                self.advance(&mut state);
            }
            None => {
                if let Some(code) = state.exit {
                    let timed_out: &[u8] = if state.timed_out { &[1] } else { &[] };
                    frame::push(&mut self.outgoing, kind::EXIT, &code.to_be_bytes(), timed_out);
                    self.finished = true;
                }
            }
        }
    }

    /// The offset at which the client can continue if its connection ends now. Unconfirmed output takes at most half of the window, so that
    /// the process can always go on once the rest was sent.
    fn hold(&self, state: &State) -> u64 {
        self.cursor.saturating_sub(self.unconfirmed.min(state.log.keep_bytes() as u64 / 2))
    }

    fn advance(&self, state: &mut State) {
        let hold = self.hold(state);
        state.change_readers(|readers| readers.advance(self.reader, hold));
    }

    /// Whether the process waits for this client.
    fn stalls(&self) -> bool {
        let state = self.process.state();
        !self.is_late && state.leader.is_none() && state.exit.is_none() && state.log.fills(self.hold(&state))
    }

    /// Lets the client go after `stall_max`: pending output is still sent, then a fault.
    fn stall(&mut self, time: Duration) {
        self.stalled += time;
        if self.stalled < self.stall_max || !self.stalls() {
            return;
        }
        self.is_late = true;
        self.finished = true;
        self.process.state().change_readers(|readers| readers.remove(self.reader));
        let message = format!("the output was not read for {} s; the process goes on", self.stall_max.as_secs());
        // A write to memory does not fail.
        let _ = frame::write_value(&mut self.outgoing, kind::RESULT, &frame::fault_value(&Fault::unavailable(message)));
    }

    fn send(&mut self, mut stream: &UnixStream) -> Outcome<()> {
        match stream.write(&self.outgoing[self.sent..]) {
            Ok(count) => self.sent += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // Bytes that the client sent before its end are still to be read.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// False at the end of the connection.
    fn receive(&mut self, mut stream: &UnixStream) -> Outcome<bool> {
        let before = self.incoming.len();
        self.incoming.resize(before + RECEIVE_BYTES, 0);
        let result = stream.read(&mut self.incoming[before..]);
        self.incoming.truncate(before + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        self.handle_frames()?;
        Ok(true)
    }

    fn handle_frames(&mut self) -> Outcome<()> {
        let mut done = 0;
        let incoming = std::mem::take(&mut self.incoming);
        while let Some((kind, payload, length)) = frame::first_frame(&incoming[done..])? {
            self.handle(kind, payload)?;
            done += length;
        }
        self.incoming = incoming;
        self.incoming.drain(..done);
        Ok(())
    }

    fn handle(&mut self, kind: u8, payload: &[u8]) -> Outcome<()> {
        match kind {
            kind::DATA if self.input_ended => Err(Fault::invalid("input after its end")),
            kind::DATA if self.input.len() + payload.len() > INPUT_BYTES_MAX => {
                Err(Fault::too_large("more input than was taken"))
            }
            kind::DATA => {
                self.input.extend_from_slice(payload);
                self.discard_without_input()
            }
            kind::END => {
                self.input_ended = true;
                self.finish_input()
            }
            kind::ACKNOWLEDGE => {
                let mut state = self.process.state();
                state.log.acknowledge(frame::integer(payload)?);
                state.wake_supervisor();
                Ok(())
            }
            kind::CREDIT => {
                let portion = frame::integer(payload)?;
                self.credit = self.credit.saturating_add(portion);
                self.unconfirmed = self.unconfirmed.saturating_sub(portion);
                self.stalled = Duration::from_secs(0);
                self.advance(&mut self.process.state());
                Ok(())
            }
            kind::PAUSE => {
                let reached = frame::integer(payload)?;
                let name = self.name.ok_or_else(|| Fault::invalid("a client without a name cannot pause"))?;
                let mut state = self.process.state();
                let is_kept = state.log.can_hold(reached)
                    || state.readers.hold_of(self.reader).map_or(false, |hold| hold <= reached);
                let hold = Some(reached).filter(|_| is_kept);
                state.change_pauses(|pauses| pauses.begin(name, hold));
                state.change_readers(|readers| readers.remove(self.reader));
                self.paused = true;
                Ok(())
            }
            kind::LEAVE => {
                self.process.state().change_readers(|readers| readers.remove(self.reader));
                Ok(())
            }
            _ => Err(Fault::invalid("unknown frame type")),
        }
    }
}

/// Waits until the process ends, the time is over or the client is gone.
pub fn wait_for_end(process: &Process, stream: &UnixStream, time: std::time::Duration) -> Outcome<()> {
    let event = Arc::new(Event::new()?);
    process.state().watch(&event);
    let started = std::time::Instant::now();
    loop {
        event.clear();
        let left = time.saturating_sub(started.elapsed());
        if process.state().exit.is_some() || left.as_nanos() == 0 {
            break;
        }
        let mut fds = [PollFd::new(&*event, POLLIN), PollFd::new(stream, POLLIN)];
        sys::poll(&mut fds, Some(left));
        if fds[1].ready(POLLIN | POLLHUP | POLLERR) {
            break;
        }
    }
    process.state().unwatch(&event);
    Ok(())
}
