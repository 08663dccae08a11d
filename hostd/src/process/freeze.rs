//! Freezes a sandbox at a moment at which CRIU can seize all its threads. Each attempt looks at thousands of threads, so a process of its
//! own does it, not the server's main thread. Tells `frozen`, or `vfork` when no such moment came and nothing is frozen. After
//! a failure or a kill the group may be frozen, so the caller thaws it.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use sys::Error;

const ATTEMPTS_MAX: u32 = 200;
/// Bound of all attempts together: the sandbox stands still during each.
const ATTEMPTS_TIME: Duration = Duration::from_secs(30);
const PAUSE_MAX_NANOS: u32 = 5_000_000;
const FREEZE_TIME: Duration = Duration::from_secs(10);
const FREEZE_POLL: Duration = Duration::from_millis(1);
/// System calls in which a process waits until its child has begun a program of its own: clone, clone3 and vfork.
#[cfg(target_arch = "aarch64")]
const VFORK_CALLS: [&str; 2] = ["220", "435"];
#[cfg(not(target_arch = "aarch64"))]
const VFORK_CALLS: [&str; 3] = ["56", "58", "435"];

#[derive(Debug, PartialEq)]
enum Met {
    Frozen,
    /// A process has lent its memory to a child (vfork) and does not get it back.
    Vfork,
}

/// `groups`: the group in each hierarchy, in the order in which the server asks them.
pub fn freeze(groups: &[PathBuf]) -> Result<String, Error> {
    let met = match freeze_for_dump(groups)? {
        Met::Frozen => "frozen\n",
        Met::Vfork => "vfork\n",
    };
    Ok(met.into())
}

fn freeze_for_dump(groups: &[PathBuf]) -> Result<Met, Error> {
    let freezer = Freezer::of(groups)?;
    let until = Instant::now() + ATTEMPTS_TIME;
    for _ in 0..ATTEMPTS_MAX {
        let stopped: HashSet<i32> = members(groups).into_iter().filter(|pid| is_stopped(*pid)).collect();
        // CRIU freezes too, but checks only ten times a second whether it has worked.
        freezer.freeze()?;
        let frozen = members(groups);
        if !frozen.iter().any(|pid| is_vforking(*pid)) {
            // The kernel does not let a debugger seize a process that is both frozen and stopped. The second signal stays pending
            // until the process runs again, here or after a restore.
            for pid in frozen.iter().filter(|pid| stopped.contains(pid)) {
                sys::continue_and_stop(*pid);
            }
            return Ok(Met::Frozen);
        }
        thaw(groups)?;
        if Instant::now() > until {
            break;
        }
        pause();
    }
    Ok(Met::Vfork)
}

/// A random pause: a process that starts programs periodically must not be met at the same phase again.
fn pause() {
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    // The clock of a virtual machine may count in steps of 1000 ns; the quotient varies all the same.
    sleep(Duration::from_nanos(u64::from((nanos / 7) % PAUSE_MAX_NANOS)));
}

/// The first hierarchy with a freezer, of version 1 or 2.
pub enum Freezer {
    One(PathBuf),
    Two(PathBuf),
}

impl Freezer {
    pub fn of(groups: &[PathBuf]) -> Result<Freezer, Error> {
        for group in groups {
            if group.join("freezer.state").exists() {
                return Ok(Freezer::One(group.clone()));
            }
            if group.join("cgroup.freeze").exists() {
                return Ok(Freezer::Two(group.clone()));
            }
        }
        Err(Error::new(format!("control group {} has no freezer", shown(groups))))
    }

    pub fn group(&self) -> &Path {
        let (Freezer::One(group) | Freezer::Two(group)) = self;
        group
    }

    /// The freezer of another group of the same hierarchy.
    pub fn with_group(&self, group: PathBuf) -> Freezer {
        match self {
            Freezer::One(_) => Freezer::One(group),
            Freezer::Two(_) => Freezer::Two(group),
        }
    }

    /// Returns at once. A process that a debugger holds freezes when the debugger lets it go.
    pub fn begin(&self) -> Result<(), Error> {
        match self {
            Freezer::One(group) => put(&group.join("freezer.state"), "FROZEN"),
            Freezer::Two(group) => put(&group.join("cgroup.freeze"), "1"),
        }
    }

    /// Returns when all processes stand still.
    fn freeze(&self) -> Result<(), Error> {
        let until = Instant::now() + FREEZE_TIME;
        loop {
            // The kernel tries again with each write.
            self.begin()?;
            let done = match self {
                Freezer::One(group) => get(&group.join("freezer.state"))?.starts_with("FROZEN"),
                Freezer::Two(group) => get(&group.join("cgroup.events"))?.lines().any(|line| line == "frozen 1"),
            };
            if done {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(Error::new(format!("control group {} does not freeze", self.group().display())));
            }
            sleep(FREEZE_POLL);
        }
    }
}

fn thaw(groups: &[PathBuf]) -> Result<(), Error> {
    for group in groups {
        for (name, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
            let file = group.join(name);
            if file.exists() {
                put(&file, value)?;
            }
        }
    }
    Ok(())
}

/// The processes of a control group, without those of other namespaces, which have no number here, and without init.
pub fn members(groups: &[PathBuf]) -> Vec<i32> {
    let texts = groups.iter().map(|group| fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default());
    let text = texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 1).collect()
}

/// Whether a signal has stopped a process, such as a job in the background of a terminal.
fn is_stopped(pid: i32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in front may hold anything.
    let name_end = stat.iter().rposition(|byte| *byte == b')').unwrap_or(stat.len());
    stat.get(name_end + 2) == Some(&b'T')
}

/// A thread in such a call takes no notice of a debugger, and its child, frozen too, never lets it go.
fn is_vforking(pid: i32) -> bool {
    let threads = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(threads) => threads,
        Err(_) => return false,
    };
    threads.flatten().any(|thread| {
        let call = fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        VFORK_CALLS.contains(&call.split(' ').next().unwrap_or_default())
    })
}

fn put(file: &Path, value: &str) -> Result<(), Error> {
    let written =
        OpenOptions::new().write(true).truncate(true).open(file).and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(|error| Error::io("write", file.display(), error))
}

fn get(file: &Path) -> Result<String, Error> {
    fs::read_to_string(file).map_err(|error| Error::io("read", file.display(), error))
}

fn shown(groups: &[PathBuf]) -> String {
    groups.first().map(|group| group.display().to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
