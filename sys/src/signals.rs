//! Signals, and the children that are reaped on one of them.

use crate::libc::{self, c_int, c_long, c_ulong, SignalSet, TimeSpec};
use std::time::Duration;

pub const SIGHUP: i32 = 1;
pub const SIGINT: i32 = 2;
pub const SIGKILL: i32 = 9;
pub const SIGTERM: i32 = 15;
pub const SIGCHLD: i32 = 17;

const SIGUSR1: c_int = 10;
const SIGCONT: c_int = 18;
const SIGSTOP: c_int = 19;
const SIG_BLOCK: c_int = 0;
const SIG_SETMASK: c_int = 2;
const SIG_DFL: usize = 0;
const SIGNAL_MAX: c_int = 64;
const WNOHANG: c_int = 1;
const P_PID: c_int = 1;
const WEXITED: c_int = 4;
const WNOWAIT: c_int = 0x0100_0000;
const PR_SET_CHILD_SUBREAPER: c_int = 36;

/// Signals that the main thread waits for; they are blocked in every thread, so that none runs a default action.
pub struct Signals(SignalSet);

impl Signals {
    pub fn block(signals: &[i32]) -> Signals {
        let mut set: SignalSet = [0; 16];
        for &number in signals {
            // SAFETY: libc writes within the set.
            unsafe { libc::sigaddset(&mut set, number) };
        }
        // SAFETY: the set is read, and the mask before is not asked for.
        unsafe { libc::sigprocmask(SIG_BLOCK, &set, std::ptr::null_mut()) };
        Signals(set)
    }

    /// Absent when the time is over, or when something such as a memory dump has interrupted the wait.
    pub fn wait_at_most(&self, time: Duration) -> Option<i32> {
        let time = TimeSpec { seconds: time.as_secs() as c_long, nanoseconds: time.subsec_nanos() as c_long };
        // SAFETY: set and time are read, and no `siginfo_t` is asked for.
        let number = unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &time) };
        (number > 0).then_some(number)
    }
}

/// Gives every signal its default action and blocks none. Async-signal-safe.
pub fn reset() {
    let none: SignalSet = [0; 16];
    // SAFETY: no handler of this program is set, and the set is read.
    unsafe {
        for number in 1..=SIGNAL_MAX {
            libc::signal(number, SIG_DFL);
        }
        libc::sigprocmask(SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

pub fn kill(pid: i32, signal: i32) {
    // SAFETY: the call has no pointers.
    unsafe { libc::kill(pid, signal) };
}

/// As PID 1: whether any other process of the namespace is left, zombies included.
pub fn others_live() -> bool {
    // SAFETY: the call has no pointers, and signal 0 only checks.
    unsafe { libc::kill(-1, 0) == 0 }
}

pub fn become_subreaper() {
    // SAFETY: of this option the arguments are numbers.
    unsafe { libc::prctl(PR_SET_CHILD_SUBREAPER, 1 as c_ulong, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong) };
}

/// Reaps one dead child, if there is any: its pid and its wait status.
pub fn reap() -> Option<(i32, i32)> {
    let mut status: c_int = 0;
    // SAFETY: the kernel writes an int.
    let pid = unsafe { libc::waitpid(-1, &mut status, WNOHANG) };
    (pid > 0).then_some((pid, status))
}

/// 128 + n for a signal n, otherwise the exit status.
pub fn exit_code(status: i32) -> i32 {
    match status & 0x7f {
        0 => (status >> 8) & 0xff,
        number => 128 + number,
    }
}

/// Sends SIGKILL to a process group. The caller must not have reaped the leader yet: until then no other group has this id.
pub fn kill_group(leader: i32) {
    kill(-leader, SIGKILL);
}

/// Sends SIGCONT and SIGSTOP to a frozen process: it continues into a pending stop.
pub fn continue_and_stop(pid: i32) {
    kill(pid, SIGCONT);
    kill(pid, SIGSTOP);
}

/// Waits for the end of a child and leaves it unreaped, so that its pid stays its own.
pub fn wait_for_exit(pid: i32) {
    // A siginfo_t: 128 bytes, aligned like a pointer.
    let mut info = [0u64; 16];
    // SAFETY: the kernel writes a `siginfo_t`.
    while unsafe { libc::waitid(P_PID, pid as u32, info.as_mut_ptr().cast(), WEXITED | WNOWAIT) } == -1
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
    {}
}

/// From here on `interrupt_thread` ends waits in the kernel and nothing else.
pub fn let_signals_interrupt() {
    extern "C" fn ignore(_signal: c_int) {}
    let handler: extern "C" fn(c_int) = ignore;
    // SAFETY: a handler that does nothing is async-signal-safe.
    unsafe { libc::signal(SIGUSR1, handler as usize) };
}

pub fn thread_id() -> i32 {
    // SAFETY: the call has no pointers.
    unsafe { libc::gettid() }
}

/// The thread must be one of this process that has not ended.
pub fn interrupt_thread(thread: i32) {
    // SAFETY: neither call has pointers.
    unsafe { libc::tgkill(libc::getpid(), thread, SIGUSR1) };
}

/// This process gets the processor when no other wants it, and the disk after others where the kernel orders its use.
pub fn yield_to_others() {
    const LEAST: c_int = 19;
    // SAFETY: the call has no pointers.
    unsafe { libc::nice(LEAST) };
}

/// This thread, and what it starts from here on, no longer comes before other programs, if it did.
pub fn end_precedence() {
    // SAFETY: neither call has pointers. Linux keeps the value for each thread.
    unsafe {
        let has = libc::nice(0);
        if has < 0 {
            libc::nice(-has);
        }
    }
}
