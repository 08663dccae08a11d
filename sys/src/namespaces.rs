//! Namespaces of the calling thread, and user namespaces that only map ids.

use crate::libc::{self, c_int};
use crate::mounts::{propagate, MS_PRIVATE, MS_REC, MS_SLAVE};
use crate::{checked, done, Error};
use std::fs::File;
use std::io::Read;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;

const CLONE_NEWUSER: c_int = 0x1000_0000;
const CLONE_FS: c_int = 0x200;
const CLONE_NEWNS: c_int = 0x0002_0000;
const CLONE_NEWNET: c_int = 0x4000_0000;

/// Moves this thread into a private mount namespace, with a working directory of its own.
pub fn enter_private_mounts() -> Result<(), Error> {
    copy_mounts()?;
    propagate(Path::new("/"), MS_REC | MS_PRIVATE)
}

/// Moves this thread into a copy of its mount namespace, with a working directory of its own.
pub fn copy_mounts() -> Result<(), Error> {
    // SAFETY: the call has no pointers.
    checked(unsafe { libc::unshare(CLONE_NEWNS) }.into(), "unshare", "mount namespace")
}

/// From here on mounts of this namespace reach no other one. Mounts of others still reach this one where they did before.
pub fn receive_mounts() -> Result<(), Error> {
    propagate(Path::new("/"), MS_REC | MS_SLAVE)
}

/// Gives this thread root and working directory of its own, which a move into another mount namespace asks for.
pub fn own_folders() -> Result<(), Error> {
    // SAFETY: the call has no pointers.
    checked(unsafe { libc::unshare(CLONE_FS) }.into(), "unshare", "working directory")
}

pub fn enter_mounts(namespace: &impl AsRawFd) -> Result<(), Error> {
    // SAFETY: the call has no pointers.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), CLONE_NEWNS) }.into(), "setns", "mount namespace")
}

/// Moves this thread, and the programs that it starts, into a network namespace.
pub fn enter_network(namespace: &impl AsRawFd) -> Result<(), Error> {
    // SAFETY: the call has no pointers.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), CLONE_NEWNET) }.into(), "setns", "network namespace")
}

/// A user namespace in which ids `from..from+count` stand for `to..to+count`. It lives as long as the descriptor.
pub fn user_namespace(from: u32, to: u32, count: u32) -> Result<OwnedFd, Error> {
    // Two holders that have the ends of each other's pipes would wait for each other for ever.
    static ONE_HOLDER: Mutex<()> = Mutex::new(());
    let _one = ONE_HOLDER.lock();
    let (ready_read, ready_write) = pipe_ends()?;
    let (done_read, done_write) = pipe_ends()?;
    // SAFETY: the child makes only async-signal-safe calls, and ends without a return.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(Error::last("fork", "holder of a user namespace"));
    }
    if child == 0 {
        // The holder lives until the other end of `done` is closed.
        // SAFETY: only async-signal-safe calls here, each on one byte of this frame.
        unsafe {
            let mut byte = (libc::unshare(CLONE_NEWUSER) != 0) as u8;
            libc::write(ready_write.as_raw_fd(), (&byte as *const u8).cast(), 1);
            drop(done_write);
            libc::read(done_read.as_raw_fd(), (&mut byte as *mut u8).cast(), 1);
            libc::_exit(0);
        }
    }
    drop(ready_write);
    drop(done_read);
    let opened = (|| {
        let mut byte = [1];
        let ready = File::from(ready_read).read_exact(&mut byte);
        if ready.is_err() || byte != [0] {
            return Err(Error::new("unshare user namespace: refused (are user namespaces disabled?)"));
        }
        let mapping = format!("{from} {to} {count}\n");
        for map in ["uid_map", "gid_map"] {
            let path = format!("/proc/{child}/{map}");
            std::fs::write(&path, &mapping).map_err(|error| Error::io("write", &path, error))?;
        }
        let path = format!("/proc/{child}/ns/user");
        std::fs::File::open(&path).map(OwnedFd::from).map_err(|error| Error::io("open", &path, error))
    })();
    drop(done_write);
    let mut status: c_int = 0;
    // SAFETY: the kernel writes an int.
    unsafe { libc::waitpid(child, &mut status, 0) };
    opened
}

fn pipe_ends() -> Result<(OwnedFd, OwnedFd), Error> {
    let mut ends: [c_int; 2] = [-1, -1];
    // SAFETY: the kernel writes two ints.
    let made = done(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) });
    made.map_err(|error| Error::io("pipe", "for a user namespace", error))?;
    // SAFETY: the kernel has just made these, and nothing else knows them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}
