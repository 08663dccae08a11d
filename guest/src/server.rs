//! The socket: one connection, one thread, one operation.

use crate::configure::configure;
use crate::dial;
use crate::files::moving::move_entry;
use crate::files::pack::{pack, Packing};
use crate::files::protected::ProtectedDirectory;
use crate::files::remove::remove;
use crate::files::unpack::{unpack, Unpacking};
use crate::files::uploads::Uploads;
use crate::files::watch::{watch, WatchBudget};
use crate::files::{self, Upload, Written};
use crate::process::attach::{self, wait_for_end};
use crate::process::listeners;
use crate::process::output;
use crate::process::spawn::{spawn, Inheritance};
use crate::process::system;
use crate::process::table::Table;
use crate::process::Process;
use crate::protocol::fault::{Fault, Outcome};
use crate::protocol::frame::{self, kind, Entries};
use crate::protocol::request::{Request, INTEGER_MAX};
use crate::users::{self, User};
use json::{object, Value};
use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const CONNECTIONS_MAX: usize = 512;
const STACK_BYTES: usize = 256 * 1024;
/// A client has its request ready when it connects.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const LINGER_IDLE: Duration = Duration::from_secs(1);
const LINGER_READS_MAX: usize = 4096;
const WAIT_MS_MAX: u64 = 24 * 3600 * 1000;
const CREDIT_DEFAULT: u64 = 256 * 1024;
/// How long a reader can hold its process back without reading.
const STALL_MS_MAX: u64 = 60_000;
const CLIENT_BYTES_MAX: usize = 64;

pub struct Guest {
    pub table: Arc<Table>,
    pub uploads: Arc<Uploads>,
    protected: ProtectedDirectory,
    pub inheritance: Inheritance,
    watches: WatchBudget,
    connections: AtomicUsize,
}

/// Counts as one connection until it is dropped, after a panic of the thread too.
struct ConnectionPermit(Arc<Guest>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Guest {
    pub fn new(
        table: Arc<Table>,
        uploads: Arc<Uploads>,
        protected: ProtectedDirectory,
        inheritance: Inheritance,
    ) -> Guest {
        Guest {
            table,
            uploads,
            protected,
            inheritance,
            watches: WatchBudget::default(),
            connections: AtomicUsize::new(0),
        }
    }
}

pub fn accept(guest: &Arc<Guest>, listener: &UnixListener) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // Out of files or memory: other connections end meanwhile.
            Err(_) => {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
        };
        let permit = ConnectionPermit(guest.clone());
        if guest.connections.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
            let fault = Fault::unavailable(format!("more than {} connections to the guest", CONNECTIONS_MAX));
            let _ = sys::set_nonblocking(&stream)
                .and_then(|_| frame::write_line(&mut &stream, &frame::fault_value(&fault)));
            continue;
        }
        // When no thread can be made, the connection is closed.
        let _ = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || serve(&permit.0, stream));
    }
}

fn serve(guest: &Guest, stream: UnixStream) {
    let mut reader = BufReader::new(&stream);
    let (mut answered, mut lingering) = (false, true);
    let written = match handle(guest, &stream, &mut reader, &mut answered, &mut lingering) {
        Ok(()) => Ok(()),
        Err(fault) if answered => frame::write_value(&mut &stream, kind::RESULT, &frame::fault_value(&fault)),
        Err(fault) => frame::write_line(&mut &stream, &frame::fault_value(&fault)),
    };
    if written.is_ok() && lingering {
        linger(&stream, &mut reader);
    }
}

/// A close with unread bytes resets the connection, and the client may lose the answer. So read and drop later bytes of the
/// client for a while.
fn linger(stream: &UnixStream, reader: &mut impl Read) {
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_read_timeout(Some(LINGER_IDLE));
    let mut buffer = [0; 16 * 1024];
    for _ in 0..LINGER_READS_MAX {
        match reader.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

fn handle(
    guest: &Guest,
    stream: &UnixStream,
    reader: &mut BufReader<&UnixStream>,
    answered: &mut bool,
    lingering: &mut bool,
) -> Outcome<()> {
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    let line = match frame::read_line(reader)? {
        Some(line) => line,
        None => return Ok(()),
    };
    stream.set_read_timeout(None)?;
    let request =
        Request(json::parse(&line).map_err(|fault| Fault::invalid(format!("the request is not JSON: {}", fault)))?);
    let table = &guest.table;
    let find = || table.find(request.process_id()?);
    let ok = || object([("ok", true.into())]);
    let mut writer = Answering { stream, answered };
    let answer = match request.text("op")? {
        "hello" => {
            // The client must see the end of the connection only when this side is closed: a memory dump may follow.
            *lingering = !request.flag("close")?;
            hello(guest)
        }
        "configure" => configure(table, &request)?,
        "spawn" => with_process(spawn(table, &guest.inheritance, &request)?),
        "run" => return run(guest, &request, stream, reader, &mut writer),
        "processes" => return processes(table, &mut writer),
        "process" => {
            let process = find()?;
            let wait = request.optional_integer("waitMs", 0, WAIT_MS_MAX)?.unwrap_or(0);
            wait_for_end(&process, stream, Duration::from_millis(wait))?;
            let info = process.info();
            if info.get("exitCode").is_some() {
                process.state().end_told = true;
            }
            with_process(info)
        }
        "output" => {
            let bytes_max = request.optional_integer("bytesMax", 0, INTEGER_MAX)?;
            return output::send(&*find()?, bytes_max, &mut writer);
        }
        "attach" => {
            let process = find()?;
            let offset = request.optional_integer("offset", 0, INTEGER_MAX)?.unwrap_or(0);
            let credit = request.optional_integer("credit", 0, INTEGER_MAX)?.unwrap_or(CREDIT_DEFAULT);
            let input_offset = request.optional_integer("inputOffset", 0, INTEGER_MAX)?.unwrap_or(0);
            let client = request.optional_text("client")?;
            let stall = request.optional_integer("stallMs", 0, STALL_MS_MAX)?.unwrap_or(STALL_MS_MAX);
            if client.map_or(false, |name| name.is_empty() || name.len() > CLIENT_BYTES_MAX) {
                return Err(Fault::invalid(format!("client: must be 1 to {} bytes", CLIENT_BYTES_MAX)));
            }
            let early = reader.buffer().to_vec();
            let request = attach::Request { offset, credit, client, input_offset, stall: Duration::from_millis(stall) };
            return attach::attach(&process, stream, &mut writer, &early, &request);
        }
        "signal" => {
            let process = find()?;
            table.kill(&process, request.integer("signal", 1, 64)? as i32, false);
            ok()
        }
        "resize" => {
            let process = find()?;
            let (cols, rows) = (request.integer("cols", 1, 10_000)?, request.integer("rows", 1, 10_000)?);
            resize(&process, cols as u16, rows as u16)?;
            ok()
        }
        "release" => {
            table.release(request.process_id()?)?;
            ok()
        }
        "stat" => {
            act_as_user(&request)?;
            files::stat(&request.path()?)?
        }
        "inspect" => {
            act_as_user(&request)?;
            files::inspect(&request.path()?)?
        }
        "move" => {
            act_as_user(&request)?;
            let (from, to) = (request.path_of("from", "fromBase64")?, request.path_of("to", "toBase64")?);
            guest.protected.refuse_holding(&from)?;
            guest.protected.refuse_holding(&to)?;
            move_entry(&from, &to, request.flag("overwrite")?)?;
            ok()
        }
        "watch" => {
            act_as_user(&request)?;
            return watch(&request.path()?, request.flag("recursive")?, &guest.watches, stream, &mut writer);
        }
        "list" => {
            act_as_user(&request)?;
            return files::list(&request.path()?, &mut writer);
        }
        "mkdir" => {
            let owner = act_as_user(&request)?;
            let path = request.path()?;
            guest.protected.refuse_inside(&path)?;
            files::mkdir(&path, owner.as_ref())?;
            ok()
        }
        "remove" => {
            act_as_user(&request)?;
            let path = request.path()?;
            guest.protected.refuse_holding(&path)?;
            remove(&path)?;
            ok()
        }
        "read" => {
            act_as_user(&request)?;
            let offset = |key| request.optional_integer(key, 0, INTEGER_MAX);
            return files::read(&request.path()?, offset("start")?, offset("end")?, &mut writer);
        }
        "write" => return write(&request, guest, reader, &mut writer),
        "pack" => {
            let bytes_max = request.optional_integer("bytesMax", 0, INTEGER_MAX)?;
            let follows_first = request.flag("followsFirst")?;
            frame::write_line(&mut writer, &ok())?;
            return match Packing::read(follows_first, bytes_max, reader)? {
                Some(packing) => pack(&packing, &guest.protected, &mut writer),
                None => Ok(()),
            };
        }
        "unpack" => {
            let unpacking = Unpacking::of(&request)?;
            guest.protected.refuse_inside(&unpacking.target)?;
            frame::write_line(&mut writer, &ok())?;
            let report = unpack(&unpacking, &guest.protected, reader)?;
            return Ok(frame::write_value(&mut writer, kind::RESULT, &report.value())?);
        }
        "ports" => {
            let ports = dial::ports().into_iter().map(|port| u64::from(port).into()).collect();
            let mut fields = vec![("ok", true.into()), ("ports", Value::List(ports))];
            if request.flag("listeners")? {
                fields.push(("listeners", Value::List(listeners::list(table))));
            }
            object(fields)
        }
        "system-processes" => {
            frame::write_line(&mut writer, &ok())?;
            let mut entries = Entries::new(&mut writer);
            system::each(|process| Ok(entries.push(process)?))?;
            return Ok(entries.end()?);
        }
        "system-signal" => {
            let pid = request.integer("pid", 1, i32::MAX as u64)? as i32;
            system::signal(table, pid, request.integer("signal", 1, 64)? as i32)?;
            ok()
        }
        "check-port" => {
            check_port(request.integer("port", 1, 65535)? as u16, table)?;
            ok()
        }
        "dial" => {
            let port = request.integer("port", 1, 65535)? as u16;
            let server = dial::connect(port)?;
            // The check follows the connect, so that it sees a listener that appeared just before. No byte has passed yet.
            check_port(port, table)?;
            frame::write_line(&mut writer, &ok())?;
            // From here on raw bytes follow; a fault ends the connection.
            let _ = dial::relay(stream, &server, reader.buffer());
            return Ok(());
        }
        other => return Err(Fault::invalid(format!("op: unknown operation '{}'", other))),
    };
    Ok(frame::write_line(&mut writer, &answer)?)
}

fn check_port(port: u16, table: &Table) -> Outcome<()> {
    match table.keeps_private(port) {
        true => Err(Fault::forbidden(format!("port {} belongs to the agent", port))),
        false => Ok(()),
    }
}

/// Records that the answer line is sent: a later fault goes into a frame.
struct Answering<'a> {
    stream: &'a UnixStream,
    answered: &'a mut bool,
}

impl Write for Answering<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        *self.answered = true;
        self.stream.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hello(guest: &Guest) -> Value {
    object([
        ("ok", true.into()),
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("protocol", 1.into()),
        ("connections", (guest.connections.load(Ordering::SeqCst) as u64).into()),
    ])
}

fn with_process(info: Value) -> Value {
    object([("ok", true.into()), ("process", info)])
}

fn processes(table: &Table, writer: &mut impl Write) -> Outcome<()> {
    table.forget_old();
    frame::write_line(writer, &object([("ok", true.into())]))?;
    let mut entries = Entries::new(writer);
    for process in table.all() {
        entries.push(&process.info())?;
    }
    Ok(entries.end()?)
}

/// Starts a process unless its id is known, and waits for its end. Output of at most `bytesMax` follows the answer; a client that
/// has it all acknowledges that, which releases the process.
fn run(
    guest: &Guest,
    request: &Request,
    stream: &UnixStream,
    reader: &mut impl Read,
    writer: &mut impl Write,
) -> Outcome<()> {
    let wait = request.integer("waitMs", 0, WAIT_MS_MAX)?;
    let bytes_max = request.integer("bytesMax", 0, INTEGER_MAX)?;
    let id = request.process_id()?;
    let process = match guest.table.find(id) {
        Ok(known) => known,
        Err(_) => match spawn(&guest.table, &guest.inheritance, request) {
            Ok(_) => guest.table.find(id)?,
            // A repeat on another connection has started it meanwhile.
            Err(fault) => guest.table.find(id).map_err(|_| fault)?,
        },
    };
    wait_for_end(&process, stream, Duration::from_millis(wait))?;
    let info = process.info();
    let has_ended = info.get("exitCode").is_some();
    let (end, bytes) = {
        let mut state = process.state();
        state.end_told |= has_ended;
        (state.log.end(), state.log.bytes() as u64)
    };
    let has_output = has_ended && bytes <= bytes_max;
    let mut answer = Vec::new();
    frame::write_line(&mut answer, &object([("ok", true.into()), ("process", info), ("output", has_output.into())]))?;
    if !has_output {
        return Ok(writer.write_all(&answer)?);
    }
    output::send_frames(&process, end, &mut answer)?;
    writer.write_all(&answer)?;
    process.state().taken = true;
    stream.set_read_timeout(Some(LINGER_IDLE))?;
    if let Ok(Some(kind::ACKNOWLEDGE)) = frame::read_frame(reader, &mut Vec::new()) {
        guest.table.release(id)?;
    }
    Ok(())
}

fn resize(process: &Process, cols: u16, rows: u16) -> Outcome<()> {
    if !process.has_terminal {
        return Err(Fault::invalid(format!("id: process '{}' has no terminal", process.id)));
    }
    // An ended process has no terminal.
    let terminal = process.state().terminal.clone();
    match terminal {
        Some(terminal) => sys::resize_terminal(&*terminal, cols, rows).map_err(|error| Fault::own(error, "resize")),
        None => Ok(()),
    }
}

/// Gives this thread the rights of the request's user, or root's without one, until the thread ends.
fn act_as_user(request: &Request) -> Outcome<Option<User>> {
    let user = request.optional_text("user")?.map(users::find).transpose()?;
    if let Some(User { name, uid, gid, groups, .. }) = &user {
        // Root has all rights, whatever its groups are.
        if *uid != 0 {
            sys::act_as(*uid, *gid, groups)
                .map_err(|error| Fault::invalid(format!("user: cannot act as {}: {}", name, error)))?;
        }
    }
    Ok(user)
}

fn write(request: &Request, guest: &Guest, reader: &mut impl Read, writer: &mut impl Write) -> Outcome<()> {
    let owner = act_as_user(request)?;
    let path = request.path()?;
    guest.protected.refuse_inside(&files::follow_links(&path)?)?;
    let upload = Upload {
        path: &path,
        resume: request.optional_text("resume")?,
        bytes_max: request.optional_integer("bytesMax", 0, INTEGER_MAX)?,
        mode: request.optional_integer("mode", 0, 0o7777)?.unwrap_or(0o644) as u32,
        owner,
    };
    let (bytes, paused) = match files::write(&upload, &guest.uploads, reader, writer)? {
        Written::Whole(bytes) => (bytes, None),
        Written::Paused(bytes, token) => (bytes, Some(token)),
        Written::Broken => return Ok(()),
    };
    let mut result = vec![("ok", true.into()), ("bytes", bytes.into())];
    if let Some(token) = paused {
        result.push(("paused", Value::Text(token)));
    }
    Ok(frame::write_value(writer, kind::RESULT, &object(result))?)
}
