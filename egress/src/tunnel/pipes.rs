//! Pipes through which the kernel hands data from one socket to another without a copy (splice(2)). A direction has one only while it has data.

use crate::sandboxes::lock;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The kernel gives less to a user who has many (pipe-user-pages-soft of pipe(7)).
const PIPE_BYTES: usize = 256 * 1024;
/// A pipe that holds less moves data more slowly than a copy does.
const PIPE_BYTES_MIN: usize = 32 * 1024;
/// Each has two descriptors, and pages of the kernel while its reader is slow.
const PIPES_MAX: usize = 2048;
const IDLE_MAX: usize = 32;

#[derive(Clone)]
pub struct Pipes(Arc<Shared>);

struct Shared {
    max: usize,
    idle: Mutex<Vec<Ends>>,
    made: AtomicUsize,
}

struct Ends {
    read: OwnedFd,
    write: OwnedFd,
    bytes: usize,
}

/// Goes back to the pipes when it is dropped empty, else it is closed.
pub struct Pipe {
    shared: Arc<Shared>,
    ends: Option<Ends>,
    pub held: usize,
}

impl Pipes {
    /// With at most so many descriptors.
    pub fn new(files: usize) -> Pipes {
        let max = (files / 2).min(PIPES_MAX);
        Pipes(Arc::new(Shared { max, idle: Mutex::default(), made: AtomicUsize::new(0) }))
    }

    /// Absent when there are too many: then data is copied.
    pub fn take(&self) -> Option<Pipe> {
        let shared = self.0.clone();
        let idle = lock(&shared.idle).pop();
        if let Some(ends) = idle {
            return Some(Pipe { shared, ends: Some(ends), held: 0 });
        }
        if shared.made.fetch_add(1, Ordering::Relaxed) >= shared.max {
            shared.made.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let pipe = Pipe { ends: Ends::make().ok(), shared, held: 0 };
        if pipe.ends.is_none() {
            pipe.shared.made.fetch_sub(1, Ordering::Relaxed);
        }
        pipe.ends.is_some().then_some(pipe)
    }
}

impl Ends {
    fn make() -> io::Result<Ends> {
        let mut ends: [RawFd; 2] = [0; 2];
        // SAFETY: the pointer is to two numbers.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were opened just now, and nothing else knows them.
        let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: the calls have no pointers. A refusal to enlarge leaves the pipe as it is.
        let bytes = unsafe {
            libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES as libc::c_int);
            libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ)
        };
        let bytes = usize::try_from(bytes).unwrap_or(0);
        if bytes < PIPE_BYTES_MIN {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Ends { read, write, bytes })
    }
}

impl Pipe {
    fn ends(&self) -> &Ends {
        self.ends.as_ref().expect("a pipe has its ends until it is dropped")
    }

    /// Takes what the socket has; 0 at its end.
    pub fn fill(&mut self, from: &impl AsRawFd) -> io::Result<usize> {
        let ends = self.ends();
        let taken = splice(from.as_raw_fd(), ends.write.as_raw_fd(), ends.bytes)?;
        self.held += taken;
        Ok(taken)
    }

    /// Gives the socket what it takes.
    pub fn drain(&mut self, to: &impl AsRawFd) -> io::Result<usize> {
        let given = splice(self.ends().read.as_raw_fd(), to.as_raw_fd(), self.held)?;
        self.held -= given;
        Ok(given)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let Some(ends) = self.ends.take() else { return };
        let mut idle = lock(&self.shared.idle);
        if self.held == 0 && idle.len() < IDLE_MAX {
            idle.push(ends);
            return;
        }
        drop(idle);
        drop(ends);
        self.shared.made.fetch_sub(1, Ordering::Relaxed);
    }
}

fn splice(from: RawFd, to: RawFd, bytes: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: no offsets are given; both descriptors are open for as long as this call.
    let moved = unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), bytes, flags) };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}
