//! Programs of a dead server, and programs without a supervisor. Their names and arguments identify them, which any process can imitate, so
//! only a process in hostd's pid namespace counts. A process of a sandbox is never in it, and nothing but its namespace is read: a read of
//! its arguments could wait for its memory.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use json::Value;
use sys::pidfd::Pidfd;
use sys::Error;

/// Programs that the server starts on the host and that work for a moment.
const OWN_PROGRAMS: [&[u8]; 7] = [b"runc", b"btrfs", b"mkfs.btrfs", b"mount", b"umount", b"cp", b"skopeo"];
const END_TIME: Duration = Duration::from_secs(10);

/// Waits, up to the timeout, for dumps and restores of a dead server: their processes would not survive an interruption. Tells how many
/// there were.
pub fn await_dumps(root: &Path, timeout_ms: u64) -> Result<String, Error> {
    let until = Instant::now() + Duration::from_millis(timeout_ms);
    let mut waited_for = HashSet::new();
    loop {
        let dumps = of_this_host(|argv, _| is_dump(argv, root))?;
        waited_for.extend(dumps.iter().map(|dump| dump.pid));
        let ended = dumps.iter().all(|dump| dump.pidfd.ends_before(until));
        if dumps.is_empty() || !ended {
            return Ok(format!("{}\n", waited_for.len()));
        }
    }
}

/// Ends tools that work on one of these paths or below. Tells how many there were.
pub fn end_tools(paths: &[PathBuf]) -> Result<String, Error> {
    let tools = of_this_host(|argv, _| is_tool(argv, paths))?;
    end(&tools)?;
    Ok(format!("{}\n", tools.len()))
}

/// Ends every CRIU that works in one of these folders or below. One that serves lazy pages can outlive a server. The processes of an
/// unfinished restore end with their control group.
pub fn end_criu(folders: &[PathBuf], lazy_pages_too: bool) -> Result<(), Error> {
    let works = |argv: &[Vec<u8>], cwd: &Path| {
        let brings_memory = argv.get(1).map_or(false, |word| word == b"lazy-pages");
        is_criu(argv) && is_within(cwd, folders) && (lazy_pages_too || !brings_memory)
    };
    end(&of_this_host(works)?)
}

fn is_dump(argv: &[Vec<u8>], root: &Path) -> bool {
    let has = |wanted: &[u8]| argv.iter().any(|word| word == wanted);
    name_of(argv) == b"runc" && has(root.as_os_str().as_bytes()) && (has(b"checkpoint") || has(b"restore"))
}

fn is_tool(argv: &[Vec<u8>], paths: &[PathBuf]) -> bool {
    let names = |word: &[u8]| is_within(Path::new(OsStr::from_bytes(word)), paths);
    let words = argv.get(1..).unwrap_or_default();
    match (name_of(argv), words) {
        // A resident program below such a path may belong to another server, and ends with that server.
        (b"atoll-hostd", [command, request, ..]) if command == b"perform" => {
            let request = std::str::from_utf8(request).ok().and_then(|text| json::parse(text).ok());
            request.map_or(false, |request| has_text(&request, &names))
        }
        (b"atoll-hostd", _) => false,
        (name, words) => OWN_PROGRAMS.contains(&name) && words.iter().any(|word| names(word)),
    }
}

/// Whether a text in this value is wanted.
fn has_text(value: &Value, is_wanted: &impl Fn(&[u8]) -> bool) -> bool {
    match value {
        Value::Text(text) => is_wanted(text.as_bytes()),
        Value::List(items) => items.iter().any(|item| has_text(item, is_wanted)),
        Value::Object(fields) => fields.values().any(|field| has_text(field, is_wanted)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// CRIU writes what it does over its arguments: `criu: dump --rpc …`.
fn is_criu(argv: &[Vec<u8>]) -> bool {
    name_of(argv) == b"criu" || argv.first().map_or(false, |word| word.starts_with(b"criu: "))
}

fn name_of(argv: &[Vec<u8>]) -> &[u8] {
    let program = argv.first().map_or(&b""[..], |word| word.as_slice());
    program.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Compares whole parts of the path, so that `/a/bc` is not within `/a/b`.
fn is_within(path: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

struct Stray {
    pid: i32,
    pidfd: Pidfd,
}

/// The processes of this pid namespace with such arguments in such a working folder, this one left out.
fn of_this_host(is_wanted: impl Fn(&[Vec<u8>], &Path) -> bool) -> Result<Vec<Stray>, Error> {
    let own = std::process::id() as i32;
    let all = fs::read_dir("/proc").map_err(|error| Error::io("read", "/proc", error))?;
    let pids = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    Ok(pids.filter(|pid| *pid != own).filter_map(|pid| stray(pid, &is_wanted)).collect())
}

/// None also for a process that ends meanwhile.
fn stray(pid: i32, is_wanted: &impl Fn(&[Vec<u8>], &Path) -> bool) -> Option<Stray> {
    if !is_of_this_host(pid) {
        return None;
    }
    let pidfd = Pidfd::open(pid).ok()?;
    let text = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let argv: Vec<Vec<u8>> = text.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let is_it = is_wanted(&argv, &cwd) && is_of_this_host(pid) && pidfd.exists();
    is_it.then_some(Stray { pid, pidfd })
}

fn is_of_this_host(pid: i32) -> bool {
    let namespace = |who: &str| fs::read_link(format!("/proc/{who}/ns/pid")).ok();
    let own = namespace("self");
    own.is_some() && own == namespace(&pid.to_string())
}

fn end(strays: &[Stray]) -> Result<(), Error> {
    strays.iter().for_each(|stray| stray.pidfd.kill());
    let until = Instant::now() + END_TIME;
    match strays.iter().find(|stray| !stray.pidfd.ends_before(until)) {
        Some(stray) => Err(Error::new(format!("process {} does not end", stray.pid))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
