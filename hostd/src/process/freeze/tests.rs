//! A group of plain files freezes nothing, but shows what was written where.

use super::*;
use std::io::Read;
use std::os::raw::c_int;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

extern "C" {
    fn vfork() -> c_int;
    fn pause() -> c_int;
}

struct Group(PathBuf);

impl Group {
    fn new(name: &str, files: &[(&str, &str)]) -> Group {
        let folder = std::env::temp_dir().join(format!("atoll-hostd-freeze-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("made");
        for (name, text) in files {
            fs::write(folder.join(name), text).expect("written");
        }
        Group(folder)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect("read")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        sys::kill_group(self.0.id() as i32);
        let _ = self.0.wait();
    }
}

fn state_of(pid: u32) -> u8 {
    let stat = fs::read(format!("/proc/{pid}/stat")).expect("it runs");
    stat[stat.iter().rposition(|byte| *byte == b')').expect("a name") + 2]
}

#[test]
fn the_first_hierarchy_with_a_freezer_is_frozen_and_no_other() {
    let none = Group::new("none", &[("cgroup.procs", "")]);
    let one = Group::new("one", &[("freezer.state", "THAWED\n"), ("cgroup.procs", "")]);
    let two = Group::new("two", &[("cgroup.freeze", "0\n"), ("cgroup.events", "populated 1\nfrozen 1\n")]);
    let all = [none.0.clone(), one.0.clone(), two.0.clone()];
    assert_eq!(freeze_for_dump(&all).ok(), Some(Met::Frozen));
    assert_eq!((one.read("freezer.state").as_str(), two.read("cgroup.freeze").as_str()), ("FROZEN", "0\n"));
    assert_eq!(freeze_for_dump(&[none.0.clone(), two.0.clone()]).ok(), Some(Met::Frozen));
    assert_eq!(two.read("cgroup.freeze"), "1");
    assert!(freeze_for_dump(std::slice::from_ref(&none.0)).is_err());
}

/// Context switches of a process: more of them when it has run.
fn switches_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
    counts.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

#[test]
fn a_stopped_process_is_let_go_on_into_a_stop_that_waits() {
    let mut command = Command::new("sleep");
    let stopped = Ended(sys::lead_own_group(command.arg("1000")).spawn().expect("runs"));
    let pid = stopped.0.id();
    assert!(Command::new("kill").args(["-STOP", &pid.to_string()]).status().expect("sent").success());
    while state_of(pid) != b'T' {}
    let before = switches_of(pid);
    let group = Group::new("stopped", &[("freezer.state", "THAWED\n"), ("cgroup.procs", &format!("0\n1\n{pid}\n"))]);
    assert_eq!(freeze_for_dump(std::slice::from_ref(&group.0)).ok(), Some(Met::Frozen));
    // Nothing has frozen the process here, so it runs until it meets the second signal.
    while switches_of(pid) == before || state_of(pid) != b'T' {}
}

#[test]
fn a_process_that_waits_for_the_memory_it_lent_is_told_of_and_nothing_stays_frozen() {
    let mut command = Command::new("true");
    // This child never begins its program: it lends its memory to one of its own, which waits for ever.
    sys::lead_own_group(&mut command);
    // SAFETY: the closure makes only system calls.
    unsafe {
        command.pre_exec(|| {
            if vfork() == 0 {
                loop {
                    pause();
                }
            }
            Ok(())
        })
    };
    // `spawn` waits for the program to begin.
    let (started, ids) = std::sync::mpsc::channel();
    let spawner = std::thread::spawn(move || {
        let _ = started.send(sys::thread_id());
        command.spawn().map(Ended)
    });
    let thread = ids.recv().expect("starts");
    let children = format!("/proc/self/task/{thread}/children");
    let lender = loop {
        let mut text = String::new();
        let _ = fs::File::open(&children).and_then(|mut file| file.read_to_string(&mut text));
        match text.split_whitespace().next().and_then(|pid| pid.parse::<i32>().ok()) {
            Some(pid) if is_vforking(pid) => break pid,
            _ => std::thread::yield_now(),
        }
    };
    let group = Group::new("vfork", &[("freezer.state", "THAWED\n"), ("cgroup.procs", &format!("{lender}\n"))]);
    assert_eq!(freeze_for_dump(std::slice::from_ref(&group.0)).ok(), Some(Met::Vfork));
    assert_eq!(group.read("freezer.state"), "THAWED");
    sys::kill_group(lender);
    let _ = spawner.join();
}
