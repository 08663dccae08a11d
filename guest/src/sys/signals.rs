//! Signals, and the children that are reaped on one of them.

use std::os::raw::{c_int, c_long, c_ulong, c_void};
use std::time::Duration;

pub const SIGHUP: i32 = 1;
pub const SIGINT: i32 = 2;
pub const SIGKILL: i32 = 9;
pub const SIGTERM: i32 = 15;
pub const SIGCHLD: i32 = 17;

const SIG_BLOCK: c_int = 0;
const SIG_SETMASK: c_int = 2;
const SIG_DFL: usize = 0;
const SIGNAL_MAX: c_int = 64;
const WNOHANG: c_int = 1;
const PR_SET_CHILD_SUBREAPER: c_int = 36;

#[repr(C)]
struct TimeSpec {
    seconds: c_long,
    nanoseconds: c_long,
}

type SignalSet = [u64; 16];

extern "C" {
    #[link_name = "kill"]
    fn c_kill(pid: c_int, signal: c_int) -> c_int;
    fn prctl(option: c_int, ...) -> c_int;
    fn sigaddset(set: *mut SignalSet, signal: c_int) -> c_int;
    fn signal(signal: c_int, handler: usize) -> usize;
    fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn sigtimedwait(set: *const SignalSet, info: *mut c_void, timeout: *const TimeSpec) -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
}

/// Signals that the main thread waits for; they are blocked in every thread, so that none runs a default action.
pub struct Signals(SignalSet);

impl Signals {
    pub fn block(signals: &[i32]) -> Signals {
        let mut set: SignalSet = [0; 16];
        for &number in signals {
            unsafe { sigaddset(&mut set, number) };
        }
        unsafe { sigprocmask(SIG_BLOCK, &set, std::ptr::null_mut()) };
        Signals(set)
    }

    /// Absent when the time is over, or the wait was interrupted as it is by a memory dump.
    pub fn wait_at_most(&self, time: Duration) -> Option<i32> {
        let time = TimeSpec { seconds: time.as_secs() as c_long, nanoseconds: time.subsec_nanos() as c_long };
        let number = unsafe { sigtimedwait(&self.0, std::ptr::null_mut(), &time) };
        (number > 0).then_some(number)
    }
}

/// Gives every signal its default action and blocks none. Async-signal-safe.
pub fn reset() {
    let none: SignalSet = [0; 16];
    unsafe {
        for number in 1..=SIGNAL_MAX {
            signal(number, SIG_DFL);
        }
        sigprocmask(SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

pub fn kill(pid: i32, signal: i32) {
    unsafe { c_kill(pid, signal) };
}

/// As PID 1: whether any other process of the namespace is left, zombies included.
pub fn others_live() -> bool {
    unsafe { c_kill(-1, 0) == 0 }
}

pub fn become_subreaper() {
    unsafe { prctl(PR_SET_CHILD_SUBREAPER, 1 as c_ulong, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong) };
}

/// Reaps one dead child, if there is any: its pid and its wait status.
pub fn reap() -> Option<(i32, i32)> {
    let mut status: c_int = 0;
    let pid = unsafe { waitpid(-1, &mut status, WNOHANG) };
    (pid > 0).then_some((pid, status))
}

/// 128 + n for a signal n, otherwise the exit status.
pub fn exit_code(status: i32) -> i32 {
    match status & 0x7f {
        0 => (status >> 8) & 0xff,
        number => 128 + number,
    }
}
