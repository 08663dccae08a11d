//! PID 1 of an Atoll sandbox. It listens on a unix socket for the operations of docs/internals/guest-protocol.md, and reaps.
//!
//! Usage: `atoll-guest --socket <path>`. Outside a pid namespace of its own it works the same for its descendants.

#![warn(clippy::undocumented_unsafe_blocks)]

mod clock;
mod configure;
mod dial;
mod files;
mod process;
mod protocol;
mod server;
mod users;

use clock::Stopwatch;
use files::protected::ProtectedDirectory;
use files::uploads::Uploads;
use process::spawn::Inheritance;
use process::table::Table;
use server::Guest;
use std::fs;
use std::path::PathBuf;
use std::process::exit;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Enough for the connections and for four files of each process.
const OPEN_FILES_WANTED: u64 = 8192;
/// Interval of the search for expired uploads and processes.
const TICK: Duration = Duration::from_secs(20);
const GENTLE_END: Duration = Duration::from_secs(2);
/// Thousandths of the memory: the kernel kills the guest before a child only if the guest holds this much more.
const OOM_SCORE_STEP: i32 = 200;
const OOM_SCORE_MAX: i32 = 1000;

fn main() {
    let socket = socket_argument().unwrap_or_else(|| {
        eprintln!("usage: atoll-guest --socket <path>");
        exit(2)
    });
    // Before there are threads, which inherit the mask.
    let signals = sys::Signals::block(&[sys::SIGCHLD, sys::SIGTERM, sys::SIGINT, sys::SIGHUP]);
    sys::use_one_arena();
    sys::umask(0o022);
    close_inherited_files_on_exec();
    let is_init = std::process::id() == 1;
    if !is_init {
        sys::become_subreaper();
    }
    let inheritance =
        Inheritance { file_limit: sys::raise_file_limit(OPEN_FILES_WANTED), oom_score_adj: oom_score_of_children() };
    let table = Arc::new(Table::new());
    let uploads = Arc::new(Uploads::default());
    let listener = sys::socket::bind_private(&socket).unwrap_or_else(|error| {
        eprintln!("atoll-guest: {}: {}", socket.display(), error);
        exit(1)
    });
    let guest =
        Arc::new(Guest::new(table.clone(), uploads.clone(), ProtectedDirectory::of_socket(&socket), inheritance));
    thread::spawn(move || server::accept(&guest, &listener));

    let mut stopwatch = Stopwatch::new();
    let mut since_tick = Duration::from_secs(0);
    loop {
        match signals.wait_at_most(TICK) {
            Some(sys::SIGTERM | sys::SIGINT) => break,
            Some(_) => table.reap(),
            None => {}
        }
        let passed = stopwatch.next(TICK);
        clock::pass(passed);
        since_tick += passed;
        if since_tick >= TICK {
            uploads.pass(since_tick);
            table.forget_old();
            since_tick = Duration::from_secs(0);
        }
    }
    table.terminate_all(is_init, GENTLE_END, &signals);
    let _ = fs::remove_file(&socket);
}

fn socket_argument() -> Option<PathBuf> {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next(), arguments.next()) {
        (Some(name), Some(path), None) if name == "--socket" => Some(PathBuf::from(path)),
        _ => None,
    }
}

fn close_inherited_files_on_exec() {
    for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        if let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) {
            if fd > 2 {
                let _ = sys::set_close_on_exec(fd);
            }
        }
    }
}

/// Children are killed before the guest; a guest that is exempt does not exempt them.
fn oom_score_of_children() -> i32 {
    let score = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    match score.trim().parse::<i32>() {
        Ok(score) if score < 0 => 0,
        Ok(score) => (score + OOM_SCORE_STEP).min(OOM_SCORE_MAX),
        Err(_) => OOM_SCORE_STEP,
    }
}
