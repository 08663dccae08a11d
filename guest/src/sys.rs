//! The libc calls that std has no name for, each behind a safe function.

mod acting;
mod child;
mod filesystem;
mod inspect;
mod machine;
mod open;
mod poll;
mod signals;
mod terminal;

pub use acting::{act_as, file_uid, hold_acting};
pub use child::{raise_file_limit, ChildSetup, FileLimit, FAULT_CWD, FAULT_USER};
pub use filesystem::has_true_sizes;
pub use inspect::{listening_port, open_process, process_group, signal_process};
pub use machine::{add_entropy, interface_up, set_hostname, since_boot};
pub use open::open_strictly;
pub use poll::{poll, set_nonblocking, unread_bytes, Event, PollFd, POLLERR, POLLHUP, POLLIN, POLLOUT};
pub use signals::{
    become_subreaper, exit_code, kill, others_live, reap, Signals, SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGTERM,
};
pub use terminal::{open_terminal, resize_terminal};

use std::io;
use std::os::raw::{c_int, c_uint};
use std::os::unix::io::{AsRawFd, RawFd};

pub const O_NOCTTY: i32 = 0o400;
pub const O_NONBLOCK: i32 = 0o4000;
#[cfg(target_arch = "aarch64")]
pub const O_DIRECTORY: i32 = 0o40000;
#[cfg(target_arch = "aarch64")]
pub const O_NOFOLLOW: i32 = 0o100000;
#[cfg(not(target_arch = "aarch64"))]
pub const O_DIRECTORY: i32 = 0o200000;
#[cfg(not(target_arch = "aarch64"))]
pub const O_NOFOLLOW: i32 = 0o400000;
pub const O_PATH: i32 = 0o10000000;
const O_WRONLY: c_int = 1;
const O_RDWR: c_int = 2;
const O_CLOEXEC: c_int = 0o2000000;

const F_SETFD: c_int = 2;
const FD_CLOEXEC: c_int = 1;
const M_ARENA_MAX: c_int = -8;

extern "C" {
    #[link_name = "fchown"]
    fn c_fchown(fd: c_int, uid: c_uint, gid: c_uint) -> c_int;
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn geteuid() -> c_uint;
    fn mallopt(parameter: c_int, value: c_int) -> c_int;
    #[link_name = "malloc_trim"]
    fn c_malloc_trim(pad: usize) -> c_int;
    #[link_name = "umask"]
    fn c_umask(mask: c_uint) -> c_uint;
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

pub fn set_close_on_exec(fd: RawFd) {
    unsafe { fcntl(fd, F_SETFD, FD_CLOEXEC) };
}

pub fn fchown(fd: &impl AsRawFd, uid: u32, gid: u32) -> io::Result<()> {
    check(unsafe { c_fchown(fd.as_raw_fd(), uid, gid) }).map(|_| ())
}

pub fn effective_uid() -> u32 {
    unsafe { geteuid() }
}

pub fn umask(mask: u32) -> u32 {
    unsafe { c_umask(mask) }
}

/// One allocation arena: many threads with one arena each would hold on to much more memory than they use.
pub fn use_one_arena() {
    unsafe { mallopt(M_ARENA_MAX, 1) };
}

pub fn malloc_trim() {
    unsafe { c_malloc_trim(0) };
}
