//! The resident hostd. It ends with its standard input, where the server writes requests; answers go to standard output.
//!
//! Both are frames (`protocol/frame.rs`). The first frame of each side is its greeting, with its version of the protocol. A request has an
//! `id`, which its answer has too; `protocol/request.rs` and `protocol/answer.rs` have the rest. A socket that a request asks for comes on
//! the channel (`sys/src/channel.rs`) and is the answer.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::process::ends::Ends;
use crate::process::launch::{Program, Programs, STACK_BYTES};
use crate::protocol::answer::{greeting, write_frame, Answer};
use crate::protocol::fields::{refused, Fields, Process};
use crate::protocol::frame;
use crate::protocol::request::{assert_version, Request, Resident};
use crate::{commands, connect, relay};
use sys::channel::Channel;
use sys::Error;

const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What the threads of the requests share.
struct Server {
    programs: Programs,
    ends: Ends,
    /// Where sockets are handed over; without one, no connection is made.
    channel: Option<Channel>,
    output: Mutex<io::Stdout>,
}

/// `socket`: the path of the relay's socket.
pub fn serve(socket: &Path) -> Result<(), Error> {
    let channel = Channel::take();
    relay::serve(socket)?;
    let ends = Ends::new().map_err(|error| Error::new(format!("epoll: {error}")))?;
    let server = Arc::new(Server { programs: Programs::default(), ends, channel, output: Mutex::new(io::stdout()) });
    write_frame(&mut io::stdout(), &greeting(), &[])
        .map_err(|error| Error::new(format!("standard output: {error}")))?;
    let mut input = io::stdin().lock();
    let mut read = || {
        let frame = frame::read(&mut input, 1..=REQUEST_BYTES_MAX);
        frame.map_err(|error| Error::new(format!("standard input: {error}")))
    };
    match read()? {
        Some(greeting) => assert_version(&mut Fields::parse(&greeting)?)?,
        None => return Ok(()),
    }
    let teller = Arc::clone(&server);
    in_thread(move || teller.tell_ends()).map_err(|error| Error::new(format!("thread: {error}")))?;
    while let Some(frame) = read()? {
        let mut fields = Fields::parse(&frame)?;
        let id = fields.number("id")?;
        if let Err(error) = server.take(id, fields, &frame) {
            server.programs.forget(id);
            server.send(id, &Answer::not_started(&error));
        }
    }
    Ok(())
}

impl Server {
    /// Fails where no thread can be started.
    fn take(self: &Arc<Server>, id: u32, fields: Fields, frame: &[u8]) -> io::Result<()> {
        let server = Arc::clone(self);
        match Request::parse(fields) {
            Err(error) => self.send(id, &Answer::done(Err(error))),
            Ok(Request::Resident(Resident::KillProgram)) => self.programs.kill(id),
            Ok(Request::Resident(Resident::AwaitExit(process))) => self.await_exit(id, process),
            Ok(Request::Resident(Resident::ConnectPort { process, port })) => {
                return in_thread(move || server.connect(id, process, port))
            }
            Ok(Request::Resident(Resident::ConnectGuest(_) | Resident::CutGuest(_))) => {
                self.send(id, &Answer::done(Err(refused("guests are reached on the socket of the relay"))))
            }
            Ok(Request::StartProgram(program)) => return self.start(id, program),
            Ok(Request::Long(_)) => return self.start(id, Program::performing(alone(frame))),
            Ok(Request::Brief(brief)) => {
                return in_thread(move || server.send(id, &Answer::done(commands::perform_brief(brief))))
            }
        }
        Ok(())
    }

    fn start(self: &Arc<Server>, id: u32, program: Program) -> io::Result<()> {
        self.programs.expect(id);
        let server = Arc::clone(self);
        in_thread(move || server.send(id, &program.run(id, &server.programs)))
    }

    fn await_exit(&self, id: u32, process: Process) {
        match self.ends.watch(id, process) {
            Ok(true) => {}
            Ok(false) => self.send(id, &Answer::done(Ok(String::new()))),
            Err(error) => self.send(id, &Answer::not_started(&error)),
        }
    }

    /// Answers the requests that wait for the end of a process.
    fn tell_ends(&self) {
        while let Ok(id) = self.ends.next() {
            self.send(id, &Answer::done(Ok(String::new())));
        }
    }

    fn connect(&self, id: u32, process: Process, port: u16) {
        let no_channel = || io::Error::from_raw_os_error(sys::EOPNOTSUPP);
        let connected = self.channel.as_ref().ok_or_else(no_channel).and_then(|channel| {
            let socket = connect::connect(process, port)?;
            channel.send(id, &socket)
        });
        if let Err(error) = connected {
            self.send(id, &Answer::not_started(&error));
        }
    }

    /// A failed write means that the server has ended; the main thread sees the end of its input.
    fn send(&self, id: u32, answer: &Answer) {
        let mut output = self.output.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let _ = answer.write(id, &mut *output);
    }
}

fn in_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(work).map(drop)
}

/// A request that was taken, as the argument of `perform`.
fn alone(frame: &[u8]) -> String {
    Fields::parse(frame).map_or_else(|_| String::new(), |fields| fields.without("id").into_request())
}
