//! Starts a process: its user, environment, folder, session, pipes or terminal, and the thread that supervises it.

use crate::process::interpreter::missing_interpreter;
use crate::process::log::{Log, Retention, Stream};
use crate::process::table::{Place, Table};
use crate::process::{supervise, About, Deadlines, Process};
use crate::protocol::fault::{reason, Fault, Outcome};
use crate::protocol::request::{absolute_path, no_zero, Request};
use crate::users::{self, User};
use json::Value;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use sys::{ChildSetup, Event, FileLimit};

const KEEP_BYTES_DEFAULT: u64 = 1 << 20;
const KEEP_BYTES_MAX: u64 = 16 << 20;
const TIME_MS_MAX: u64 = 366 * 24 * 3600 * 1000;
/// How long output can be held back for the first reader.
const READER_MS_MAX: u64 = 60_000;
const TERMINAL_SIZE_MAX: u64 = 10_000;
/// Bytes of the arguments that lists of processes show.
const ARGV_SHOWN_BYTES: usize = 8 * 1024;
const STACK_BYTES: usize = 128 * 1024;
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What all children get from the guest.
pub struct Inheritance {
    pub file_limit: FileLimit,
    /// Higher than that of the guest, so that the kernel kills a child first.
    pub oom_score_adj: i32,
}

struct Plan {
    id: String,
    argv: Vec<String>,
    command: Command,
    user: User,
    terminal: Option<(u16, u16)>,
    stdin: bool,
    private_ports: bool,
    keep: Retention,
    keep_bytes: usize,
    reader_expected: Duration,
    deadlines: Deadlines,
}

pub fn spawn(table: &Arc<Table>, inheritance: &Inheritance, request: &Request) -> Outcome<Value> {
    let mut plan = plan(inheritance, request)?;
    let place = table.place()?;
    let wake = Arc::new(Event::new().map_err(|error| Fault::own(error, "spawn"))?);
    let terminal = match plan.terminal {
        Some((cols, rows)) => Some(open_terminal(&mut plan, cols, rows)?),
        None => {
            plan.command.stdin(if plan.stdin { Stdio::piped() } else { Stdio::null() });
            plan.command.stdout(Stdio::piped()).stderr(Stdio::piped());
            None
        }
    };
    let log = Log::new(plan.keep, plan.keep_bytes);
    let about = About { has_terminal: plan.terminal.is_some(), has_private_ports: plan.private_ports };
    let (process, outputs) = {
        let mut inner = table.lock();
        inner.check_free(&plan.id)?;
        let held = sys::hold_acting();
        let spawned = plan.command.spawn();
        drop(held);
        match spawned {
            Ok(child) => {
                let process = Process::new(plan.id, shown(plan.argv), child.id() as i32, about, log);
                let outputs = connect(&process, child, terminal);
                {
                    let mut state = process.state();
                    state.supervisor = Some(wake.clone());
                    state.change_readers(|readers| readers.expect(plan.reader_expected));
                }
                let process = Arc::new(process);
                inner.insert(&process);
                (process, outputs)
            }
            Err(error) => {
                let (code, message) = cannot_execute(error, &plan.argv[0], request, &plan.user)?;
                let process = Arc::new(Process::new(plan.id, shown(plan.argv), 0, about, log));
                process.state().log.append(Stream::Stderr, message.as_bytes());
                process.end(code);
                inner.insert(&process);
                drop(inner);
                table.forget_old();
                return Ok(process.info());
            }
        }
    };
    // The command has copies of the terminal's slave, which would keep it open.
    drop(plan.command);
    let info = process.info();
    start_supervisor(table, process, wake, outputs, plan.deadlines, place)?;
    Ok(info)
}

fn start_supervisor(
    table: &Arc<Table>,
    process: Arc<Process>,
    wake: Arc<Event>,
    outputs: Vec<(Stream, File)>,
    deadlines: Deadlines,
    place: Place,
) -> Outcome<()> {
    let (supervised, owner) = (process.clone(), table.clone());
    let started = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        supervise(&owner, &supervised, &wake, outputs, deadlines);
        drop(place);
    });
    started.map(|_| ()).map_err(|error| {
        let _ = table.release(&process.id);
        Fault::own(error, "spawn")
    })
}

fn plan(inheritance: &Inheritance, request: &Request) -> Outcome<Plan> {
    let argv = argv(request)?;
    let user = users::find(request.optional_text("user")?.unwrap_or("root"))?;
    let cwd = absolute_path("cwd", request.optional_text("cwd")?.unwrap_or("/"))?;
    let terminal = terminal_size(request)?;
    let keep = match request.optional_text("keep")? {
        None | Some("tail") => Retention::Tail,
        Some("lossless") => Retention::Lossless,
        Some(_) => return Err(Fault::invalid("keep: must be 'tail' or 'lossless'")),
    };
    // 0 means never, as an absent field does.
    let time = |key| -> Outcome<Option<Duration>> {
        Ok(request.optional_integer(key, 0, TIME_MS_MAX)?.filter(|&time| time > 0).map(Duration::from_millis))
    };
    let deadlines = Deadlines::new(time("timeoutMs")?, time("maxRunAfterDisconnectMs")?);

    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).env_clear().envs(environment(request, &user, terminal.is_some())?);
    let setup = ChildSetup {
        terminal: terminal.is_some(),
        user: credentials(&user),
        cwd: CString::new(cwd.as_os_str().as_bytes()).map_err(|_| Fault::invalid("cwd: must not hold a NUL"))?,
        file_limit: inheritance.file_limit,
        oom_score_adj: inheritance.oom_score_adj.to_string().into_bytes(),
    };
    setup.apply_to(&mut command);
    Ok(Plan {
        id: request.process_id()?.to_string(),
        argv,
        command,
        user,
        terminal,
        stdin: request.flag("stdin")?,
        private_ports: request.flag("privatePorts")?,
        keep,
        keep_bytes: request.optional_integer("keepBytes", 1, KEEP_BYTES_MAX)?.unwrap_or(KEEP_BYTES_DEFAULT) as usize,
        reader_expected: Duration::from_millis(request.optional_integer("readerMs", 0, READER_MS_MAX)?.unwrap_or(0)),
        deadlines,
    })
}

fn argv(request: &Request) -> Outcome<Vec<String>> {
    let wrong = || Fault::invalid("argv: must be a list of strings, the first of them not empty");
    let mut argv = Vec::new();
    for word in request.present("argv").and_then(|value| value.as_list()).ok_or_else(wrong)? {
        argv.push(no_zero("argv", word.as_text().ok_or_else(wrong)?)?.to_string());
    }
    match argv.first() {
        Some(program) if !program.is_empty() => Ok(argv),
        _ => Err(wrong()),
    }
}

fn terminal_size(request: &Request) -> Outcome<Option<(u16, u16)>> {
    match request.present("pty") {
        None => Ok(None),
        Some(value) => {
            let size = Request(value.clone());
            let side = |key| size.integer(key, 1, TERMINAL_SIZE_MAX).map(|number| number as u16);
            Ok(Some((side("cols")?, side("rows")?)))
        }
    }
}

/// The usual variables, then those of the request.
fn environment(request: &Request, user: &User, terminal: bool) -> Outcome<BTreeMap<String, String>> {
    let mut environment = BTreeMap::new();
    let defaults = [
        ("PATH", PATH_DEFAULT),
        ("HOME", user.home.as_str()),
        ("USER", user.name.as_str()),
        ("LOGNAME", user.name.as_str()),
        ("SHELL", user.shell.as_str()),
        ("TERM", if terminal { "xterm-256color" } else { "dumb" }),
        ("LANG", "C.UTF-8"),
    ];
    for (key, value) in defaults {
        environment.insert(key.to_string(), value.to_string());
    }
    let wrong = || Fault::invalid("envs: must be an object of strings; names hold no '=' and are not empty");
    match request.present("envs") {
        None => {}
        Some(Value::Object(fields)) => {
            for (key, value) in fields {
                if key.is_empty() || key.contains('=') {
                    return Err(wrong());
                }
                let value = no_zero("envs", value.as_text().ok_or_else(wrong)?)?;
                environment.insert(no_zero("envs", key)?.to_string(), value.to_string());
            }
        }
        Some(_) => return Err(wrong()),
    }
    Ok(environment)
}

/// Absent when the process keeps the ids of a guest that may not change them (a test without root).
fn credentials(user: &User) -> Option<(u32, u32, Vec<u32>)> {
    let own = sys::effective_uid();
    if own != 0 && own == user.uid {
        return None;
    }
    Some((user.uid, user.gid, user.groups.clone()))
}

fn open_terminal(plan: &mut Plan, cols: u16, rows: u16) -> Outcome<File> {
    let fault = |error| Fault::own(error, "pty");
    let (master, slave) = sys::open_terminal(cols, rows).map_err(|error| match error.raw_os_error() {
        // ENOSPC: devpts has reached its limit, or that of the machine.
        Some(28) => {
            Fault::unavailable(format!("pty: no terminal is free, {} are open in this sandbox", open_terminals()))
        }
        _ => fault(error),
    })?;
    let _ = sys::fchown(&slave, plan.user.uid, plan.user.gid);
    let copy = || slave.try_clone().map(Stdio::from).map_err(fault);
    plan.command.stdin(copy()?).stdout(copy()?).stderr(copy()?);
    Ok(master)
}

fn open_terminals() -> usize {
    let names = std::fs::read_dir("/dev/pts").into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_str().map_or(false, |name| name.parse::<u32>().is_ok())).count()
}

/// Sorts the parent's ends of the pipes (or the terminal): the input goes into `process`, the outputs to its supervisor.
fn connect(process: &Process, mut child: Child, terminal: Option<File>) -> Vec<(Stream, File)> {
    let mut state = process.state();
    if let Some(master) = terminal {
        let output = master.try_clone();
        let master = Arc::new(master);
        state.input = Some(master.clone());
        state.terminal = Some(master);
        return output.map(|file| (Stream::Stdout, file)).into_iter().collect();
    }
    if let Some(input) = child.stdin.take() {
        let input = File::from(OwnedFd::from(input));
        let _ = sys::set_nonblocking(&input);
        state.input = Some(Arc::new(input));
    }
    let stdout = child.stdout.take().map(|pipe| (Stream::Stdout, File::from(OwnedFd::from(pipe))));
    let stderr = child.stderr.take().map(|pipe| (Stream::Stderr, File::from(OwnedFd::from(pipe))));
    stdout.into_iter().chain(stderr).collect()
}

/// Exit code and message of a shell for a program that cannot be executed. Other causes are faults of the request.
fn cannot_execute(error: io::Error, program: &str, request: &Request, user: &User) -> Outcome<(i32, String)> {
    let number = error.raw_os_error().unwrap_or(0);
    if number & sys::FAULT_CWD != 0 {
        let cause = io::Error::from_raw_os_error(number & !sys::FAULT_CWD);
        return Err(Fault::invalid(format!(
            "cwd: {}: {}",
            request.optional_text("cwd")?.unwrap_or("/"),
            reason(&cause)
        )));
    }
    if number & sys::FAULT_USER != 0 {
        let cause = io::Error::from_raw_os_error(number & !sys::FAULT_USER);
        return Err(Fault::invalid(format!("user: cannot become {}: {}", user.name, reason(&cause))));
    }
    match number {
        2 => Ok((127, not_found(program, request, user)?)), // ENOENT
        7 => Err(Fault::too_large("argv and envs are too large to execute")), // E2BIG
        11 | 12 | 23 | 24 => Err(Fault::own(error, "spawn")), // EAGAIN ENOMEM ENFILE EMFILE
        _ => Ok((126, format!("{}: cannot execute: {}\n", program, reason(&error)))),
    }
}

/// execve(2) answers ENOENT for a missing program and for one whose interpreter is missing.
fn not_found(program: &str, request: &Request, user: &User) -> Outcome<String> {
    let environment = environment(request, user, false)?;
    let path = environment.get("PATH").map_or("", |path| path.as_str());
    let cwd = absolute_path("cwd", request.optional_text("cwd")?.unwrap_or("/"))?;
    Ok(match missing_interpreter(program, path, &cwd) {
        Some(interpreter) => format!("{}: its interpreter {} does not exist\n", program, interpreter),
        None => format!("{}: command not found\n", program),
    })
}

fn shown(argv: Vec<String>) -> Vec<String> {
    let mut left = ARGV_SHOWN_BYTES;
    let mut shown = Vec::new();
    for word in argv {
        // Empty words cost something too, so that their number is bounded.
        if word.len() + 1 > left {
            let cut: String = word.chars().take(left / 4).collect();
            shown.push(cut + "…");
            break;
        }
        left -= word.len() + 1;
        shown.push(word);
    }
    shown
}
