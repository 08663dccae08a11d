//! Opens a path whose links may belong to another user.

use super::O_CLOEXEC;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem;
use std::os::raw::{c_int, c_long};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::FromRawFd;
use std::path::Path;

const SYS_OPENAT2: c_long = 437;
const AT_FDCWD: c_int = -100;
const RESOLVE_NO_MAGICLINKS: u64 = 0x02;

#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// Opens a file without a way through the links of `/proc/PID/fd`: the kernel lets every thread of the guest follow those of the
/// guest, to what other operations have open as another user. Such a way is ELOOP.
/// ENOSYS before Linux 5.6.
pub fn open_strictly(path: &Path, flags: i32) -> io::Result<File> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let how = OpenHow { flags: (flags | O_CLOEXEC) as u64, mode: 0, resolve: RESOLVE_NO_MAGICLINKS };
    // SAFETY: the name ends with NUL, the structure has the given size, and the result is a new descriptor that nobody else owns.
    unsafe {
        let fd = syscall(SYS_OPENAT2, AT_FDCWD, name.as_ptr(), &how as *const OpenHow, mem::size_of::<OpenHow>());
        if fd >= 0 {
            return Ok(File::from_raw_fd(fd as c_int));
        }
    }
    Err(io::Error::last_os_error())
}
