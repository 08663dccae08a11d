//! What this process may use, and who may look into it.

use std::io;

pub const STACK_BYTES: usize = 1024 * 1024;
const WORKERS_MAX: usize = 8;

/// One thread for each processor, within a bound: each holds memory of its own.
pub fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, WORKERS_MAX)
}

/// Takes as many descriptors as the hard limit allows. Values of secrets are in memory: no core is dumped, and no other process of this user may
/// read it (`PR_SET_DUMPABLE` of prctl(2)).
pub fn prepare() -> io::Result<()> {
    let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are to limits that outlive each call; prctl has none.
    unsafe {
        done(libc::getrlimit(libc::RLIMIT_NOFILE, &mut files))?;
        files.rlim_cur = files.rlim_max;
        done(libc::setrlimit(libc::RLIMIT_NOFILE, &files))?;
        done(libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 }))?;
        done(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0))?;
        done(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    }
}

/// Descriptors that this process may have.
pub fn files_max() -> usize {
    let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a limit that outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut files) };
    usize::try_from(files.rlim_cur).unwrap_or(usize::MAX)
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
