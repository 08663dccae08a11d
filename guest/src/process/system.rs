//! All processes of the sandbox, whoever started them, as proc(5) shows them, and signals to one of them.

use super::private_ports;
use crate::process::table::Table;
use crate::protocol::fault::{Fault, Outcome};
use crate::users;
use json::{object, Value};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::time::{SystemTime, UNIX_EPOCH};

/// The limit of processes of a sandbox.
const PROCESSES_MAX: usize = 4096;
const FILE_BYTES_MAX: u64 = 4096;
const COMMAND_CHARS_MAX: usize = 256;
const USER_CHARS_MAX: usize = 64;
/// The kernel shows times in hundredths of a second on every architecture (`USER_HZ`).
const TICK_MS: u64 = 10;

pub fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<i32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(PROCESSES_MAX).collect();
    found.sort_unstable();
    found
}

/// The arguments joined by spaces; of a process without any, its name in brackets. What is not text becomes U+FFFD.
pub fn command(pid: i32) -> String {
    let line = read(pid, "cmdline");
    let words: Vec<_> =
        line.split(|&byte| byte == 0).filter(|word| !word.is_empty()).map(String::from_utf8_lossy).collect();
    if words.is_empty() {
        return plain(&format!("[{}]", String::from_utf8_lossy(&read(pid, "comm")).trim_end()), COMMAND_CHARS_MAX);
    }
    plain(&words.join(" "), COMMAND_CHARS_MAX)
}

fn plain(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

fn read(pid: i32, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{}/{}", pid, name)) {
        let _ = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
    }
    bytes
}

/// Calls `push` for each process; one that ends meanwhile is left out.
pub fn each(mut push: impl FnMut(&Value) -> Outcome<()>) -> Outcome<()> {
    let mut names = HashMap::new();
    let booted_ms = booted_ms();
    for pid in pids() {
        let stat = match Stat::parse(&String::from_utf8_lossy(&read(pid, "stat"))) {
            Some(stat) => stat,
            None => continue,
        };
        let status = String::from_utf8_lossy(&read(pid, "status")).into_owned();
        let uid = number_after(&status, "Uid:").unwrap_or(0);
        let user = names.entry(uid).or_insert_with(|| user_name(uid)).clone();
        push(&object([
            ("pid", (pid as u64).into()),
            ("parentPid", stat.parent.into()),
            ("user", Value::Text(user)),
            ("command", Value::Text(command(pid))),
            ("state", Value::Text(stat.state.to_string())),
            ("memoryBytes", (number_after(&status, "VmRSS:").unwrap_or(0).saturating_mul(1024)).into()),
            ("cpuMs", stat.cpu_ticks.saturating_mul(TICK_MS).into()),
            ("startedSeconds", (booted_ms.saturating_add(stat.started_ticks.saturating_mul(TICK_MS)) / 1000).into()),
        ]))?;
    }
    Ok(())
}

fn user_name(uid: u64) -> String {
    let number = uid.to_string();
    plain(&users::find(&number).map(|user| user.name).unwrap_or(number), USER_CHARS_MAX)
}

/// The Unix time of the machine's boot, from which process times count. Inside a sandbox, `/proc/uptime` does not tell it.
fn booted_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(sys::since_boot()).as_millis() as u64
}

/// The first number in the line of `/proc/<pid>/status` that begins with `key`.
fn number_after(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

struct Stat {
    state: char,
    parent: u64,
    cpu_ticks: u64,
    started_ticks: u64,
}

impl Stat {
    /// The name, in brackets, may hold anything, so fields are counted from the last bracket (proc_pid_stat(5)).
    fn parse(text: &str) -> Option<Stat> {
        let mut fields = text.get(text.rfind(')')? + 1..)?.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let mut number = |skipped: usize| fields.nth(skipped)?.parse::<u64>().ok();
        let (user, system) = (number(9)?, number(0)?);
        Some(Stat { state, parent, cpu_ticks: user.saturating_add(system), started_ticks: number(6)? })
    }
}

/// Signals one process. The pidfd is opened before the check, so that no later process with the same number is hit.
pub fn signal(table: &Table, pid: i32, signal: i32) -> Outcome<()> {
    let gone = |_| Fault::not_found(format!("no process {}", pid));
    if pid == 1 || pid == std::process::id() as i32 {
        return Err(Fault::forbidden("the first process of a sandbox takes no signals"));
    }
    let process = sys::pidfd::Pidfd::open(pid).map_err(gone)?;
    if table.private_leaders().into_iter().any(|leader| private_ports::belonging_to(leader).contains(&pid)) {
        return Err(Fault::forbidden(format!("process {} belongs to the agent", pid)));
    }
    process.signal(signal).map_err(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_move_the_fields() {
        let line = "42 (a) R (b) S 7 1 1 0 -1 4194304 1 2 3 4 50 6 0 0 20 0 1 0 900 1000 5 18446744073709551615";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.state, stat.parent, stat.cpu_ticks, stat.started_ticks), ('S', 7, 56, 900));
        for broken in ["", "42", "42 (x)", "42 (x) S", "42 (x) S 7 1 1"] {
            assert!(Stat::parse(broken).is_none(), "{:?}", broken);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_and_long_commands_cut() {
        assert_eq!(plain("a\nb\u{1b}", 10), "a\u{fffd}b\u{fffd}");
        assert_eq!(plain("abc", 2), "ab");
    }

    #[test]
    fn a_process_is_listed_and_takes_a_signal_until_it_is_gone() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as i32;
        let mut found = None;
        each(|it| {
            if it.get("pid").and_then(|pid| pid.as_integer()) == Some(pid as u64) {
                found = it.get("command").and_then(|text| text.as_text()).map(str::to_string);
            }
            Ok(())
        })
        .unwrap();
        assert!(found.is_some());
        let table = Table::new();
        signal(&table, pid, sys::SIGKILL).unwrap();
        child.wait().unwrap();
        assert_eq!(signal(&table, pid, sys::SIGKILL).unwrap_err().code, "not_found");
        assert_eq!(signal(&table, 1, sys::SIGKILL).unwrap_err().code, "forbidden");
    }
}
