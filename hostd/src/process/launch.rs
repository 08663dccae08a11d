//! Starts programs for the server. The server's memory is large, and each `fork` of it copies page tables for tens of
//! milliseconds while everything else waits; this process is small.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use crate::mounts;
use crate::protocol::answer::{Answer, Status};
use crate::protocol::fields::{refused, Fields};
use sys::Error;

const OUTPUT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Room for the removal of nested folders.
pub const STACK_BYTES: usize = 1024 * 1024;

#[derive(Debug)]
pub struct Program {
    argv: Vec<OsString>,
    input: String,
    /// Without pipes: a process that the program leaves running must not hold one.
    detached: bool,
    /// The program does not see the mounts below `hide` (`mounts.rs`), but sees those below `keep`.
    hide: Option<PathBuf>,
    keep: Option<PathBuf>,
    /// Folders of the control group that the program joins before it begins. Their limits hold for all that it starts.
    groups: Vec<PathBuf>,
}

/// The programs of unanswered requests, by request id.
#[derive(Default)]
pub struct Programs(Mutex<HashMap<u32, Place>>);

enum Place {
    Starting,
    /// A kill came before the program ran.
    Killed,
    /// The pid, which no other process can have while this is in the table.
    Running(i32),
}

impl Programs {
    /// To be called before the thread of a program starts, so that a following kill finds it.
    pub fn expect(&self, id: u32) {
        self.lock().insert(id, Place::Starting);
    }

    /// Kills the program's whole process group.
    pub fn kill(&self, id: u32) {
        match self.lock().get_mut(&id) {
            Some(Place::Running(pid)) => sys::kill_group(*pid),
            Some(place) => *place = Place::Killed,
            None => {}
        }
    }

    pub fn forget(&self, id: u32) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Place>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Program {
    pub fn from_fields(fields: &mut Fields) -> Result<Program, Error> {
        let argv: Vec<OsString> = fields.texts("argv")?.into_iter().map(OsString::from).collect();
        if argv.is_empty() {
            return Err(refused("argv: must not be empty"));
        }
        let (hide, keep) = (fields.optional_path("hide")?, fields.optional_path("keep")?);
        if hide.is_none() && keep.is_some() {
            return Err(refused("keep: needs hide"));
        }
        let (input, detached, groups) = (fields.text("input")?, fields.flag("detached")?, fields.paths("groups")?);
        Ok(Program { argv, input, detached, hide, keep, groups })
    }

    /// hostd itself, for one request.
    pub fn performing(request: String) -> Program {
        let own = std::env::args_os().next().unwrap_or_default();
        let argv = vec![own, "perform".into(), request.into()];
        Program { argv, input: String::new(), detached: false, hide: None, keep: None, groups: vec![] }
    }

    /// Runs the program to its end. May leave the calling thread in another mount namespace.
    pub fn run(&self, id: u32, programs: &Programs) -> Answer {
        let started = match self.enter_mounts() {
            Err(error) => Err(Answer::done(Err(error))),
            Ok(()) => self.start(id, programs).map_err(|error| Answer::not_started(&error)),
        };
        match started {
            Ok(child) => self.finish(id, child, programs),
            Err(answer) => {
                programs.forget(id);
                answer
            }
        }
    }

    /// Becomes the program. Returns only when that fails.
    pub fn replace_this(&self) -> Result<String, Error> {
        sys::end_precedence();
        self.enter_mounts()?;
        for group in &self.groups {
            let members = group.join("cgroup.procs");
            // Number 0 is the process that writes it.
            std::fs::write(&members, "0").map_err(|error| Error::io("write", members.display(), error))?;
        }
        Err(Error::io("start", self.argv[0].to_string_lossy(), self.command().exec()))
    }

    fn enter_mounts(&self) -> Result<(), Error> {
        let hide = match &self.hide {
            Some(hide) => hide,
            None => return Ok(()),
        };
        let kept = self.keep.as_ref().map(|path| sys::clone_tree_with_mounts(path)).transpose()?;
        mounts::enter_without(hide)?;
        match (&kept, &self.keep) {
            (Some(tree), Some(path)) => sys::attach_tree(tree, path),
            _ => Ok(()),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]);
        command
    }

    fn start(&self, id: u32, programs: &Programs) -> io::Result<Child> {
        // The server and its relay come before others; what a program does for one sandbox does not, nor the sandbox that it starts.
        sys::end_precedence();
        let output = || if self.detached { Stdio::null() } else { Stdio::piped() };
        let input = if self.input.is_empty() { Stdio::null() } else { Stdio::piped() };
        let mut command = self.command();
        command.stdin(input).stdout(output()).stderr(output());
        // A process group of its own: children of a killed program would keep the pipes open and run on without an owner.
        sys::lead_own_group(&mut command);
        let members = |group: &PathBuf| OpenOptions::new().write(true).open(group.join("cgroup.procs"));
        let files = self.groups.iter().map(members).collect::<io::Result<_>>()?;
        sys::join_groups(&mut command, files);
        let child = command.spawn()?;
        let pid = child.id() as i32;
        if let Some(Place::Killed) = programs.lock().insert(id, Place::Running(pid)) {
            sys::kill_group(pid);
        }
        Ok(child)
    }

    fn finish(&self, id: u32, mut child: Child, programs: &Programs) -> Answer {
        let pid = child.id() as i32;
        let (mut stdin, mut stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let helper = || thread::Builder::new().stack_size(STACK_BYTES);
        let gathered = thread::scope(|scope| {
            // The exit status decides for a program that exits before it reads its input.
            let fed = helper()
                .spawn_scoped(scope, move || stdin.take().map(|mut stdin| stdin.write_all(self.input.as_bytes())));
            let errors = helper().spawn_scoped(scope, move || {
                stderr.map(|mut stderr| read_bounded(&mut stderr, pid)).unwrap_or_default()
            });
            let errors = match (fed, errors) {
                (Ok(_), Ok(errors)) => errors,
                (Err(error), _) | (_, Err(error)) => {
                    sys::kill_group(pid);
                    return Err(error);
                }
            };
            let (stdout, too_much) = stdout.as_mut().map(|stdout| read_bounded(stdout, pid)).unwrap_or_default();
            let (stderr, more) = errors.join().unwrap_or_default();
            Ok((stdout, stderr, too_much || more))
        });
        // First wait without reaping: until the pid is out of the table it must not be given to another process.
        sys::wait_for_exit(pid);
        programs.forget(id);
        let ended = child.wait();
        let (stdout, stderr, too_much) = match gathered {
            Ok(gathered) => gathered,
            Err(error) => return Answer::not_started(&error),
        };
        let (status, code) = match ended {
            _ if too_much => (Status::TooMuch, 0),
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => (Status::Exited, code),
                (None, signal) => (Status::Signalled, signal.unwrap_or(0)),
            },
            Err(_) => (Status::Signalled, 0),
        };
        Answer { status, code, stdout, stderr }
    }
}

/// Reads to the end, or kills the program when it has written more than the bound.
fn read_bounded(stream: &mut impl Read, pid: i32) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let _ = stream.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut bytes);
    let too_much = bytes.len() as u64 > OUTPUT_BYTES_MAX;
    if too_much {
        sys::kill_group(pid);
        bytes.truncate(OUTPUT_BYTES_MAX as usize);
    }
    (bytes, too_much)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(input: &str, argv: &[&str]) -> Program {
        let argv = argv.iter().map(OsString::from).collect();
        Program { argv, input: input.into(), detached: false, hide: None, keep: None, groups: vec![] }
    }

    fn run(input: &str, argv: &[&str]) -> Answer {
        let programs = Programs::default();
        let answer = program(input, argv).run(7, &programs);
        assert!(programs.lock().is_empty());
        answer
    }

    #[test]
    fn output_and_exit_status_come_back_apart() {
        let answer = run("some input", &["sh", "-c", "cat; echo oops >&2; exit 3"]);
        assert!(matches!((&answer.status, answer.code), (Status::Exited, 3)));
        assert_eq!(answer.stdout, b"some input");
        // The shell complains of the current folder when another test has changed it.
        assert!(answer.stderr.ends_with(b"oops\n"));
    }

    #[test]
    fn a_kill_that_comes_before_the_program_runs_is_not_lost() {
        let programs = Programs::default();
        programs.expect(7);
        programs.kill(7);
        let answer = program("", &["sleep", "600"]).run(7, &programs);
        assert!(matches!((answer.status, answer.code), (Status::Signalled, 9)));
        programs.kill(7);
        assert!(programs.lock().is_empty());
    }

    #[test]
    fn a_missing_program_is_reported_by_the_error_number() {
        let answer = run("", &["/no/such/program"]);
        assert!(matches!((answer.status, answer.code), (Status::NotStarted, 2)));
    }

    #[test]
    fn a_program_that_writes_too_much_is_killed() {
        let answer = run("", &["cat", "/dev/zero"]);
        assert!(matches!(answer.status, Status::TooMuch));
        assert_eq!(answer.stdout.len() as u64, OUTPUT_BYTES_MAX);
    }

    #[test]
    fn a_program_in_the_background_does_not_outlive_the_killed_one() {
        let answer = run("", &["sh", "-c", "sleep 600 & cat /dev/zero"]);
        assert!(matches!(answer.status, Status::TooMuch));
    }

    #[test]
    fn input_that_nobody_reads_is_no_fault() {
        let answer = run(&" ".repeat(1024 * 1024), &["true"]);
        assert!(matches!((answer.status, answer.code), (Status::Exited, 0)));
    }

    #[test]
    fn a_program_is_in_its_control_group_before_it_begins() {
        let group = std::env::temp_dir().join(format!("atoll-hostd-group-{}", std::process::id()));
        std::fs::create_dir_all(&group).expect("made");
        std::fs::write(group.join("cgroup.procs"), "").expect("written");
        let mut it = program("", &["cat", &group.join("cgroup.procs").to_string_lossy()]);
        it.groups = vec![group.clone()];
        assert_eq!(it.run(7, &Programs::default()).stdout, b"0");
        std::fs::remove_dir_all(&group).expect("removed");
        assert!(matches!(it.run(7, &Programs::default()).status, Status::NotStarted));
    }
}
