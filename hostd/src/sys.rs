//! System calls that std lacks; an `Error` names the object of the failed call.

use std::ffi::{CStr, CString};
use std::fmt;
use std::io;
use std::os::raw::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Mutex;

pub mod channel;
pub mod entry;
pub mod epoll;
pub mod folder;
pub mod netlink;
pub mod pidfd;
pub mod poll;
pub mod socket;

extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn renameat2(from: c_int, one: *const c_char, to: c_int, other: *const c_char, flags: c_uint) -> c_int;
    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int;
    fn umount2(target: *const c_char, flags: c_int) -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn setns(fd: c_int, kind: c_int) -> c_int;
    fn fork() -> c_int;
    fn pipe2(ends: *mut c_int, flags: c_int) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn setpgid(pid: c_int, group: c_int) -> c_int;
    fn waitid(kind: c_int, id: u32, info: *mut c_void, options: c_int) -> c_int;
    fn read(fd: c_int, into: *mut c_void, count: usize) -> isize;
    fn write(fd: c_int, from: *const c_void, count: usize) -> isize;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
    fn getpid() -> c_int;
    fn gettid() -> c_int;
    fn tgkill(process: c_int, thread: c_int, signal: c_int) -> c_int;
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn getrlimit(resource: c_int, limit: *mut [u64; 2]) -> c_int;
    fn nice(more: c_int) -> c_int;
    fn mkdirat(folder: c_int, path: *const c_char, mode: c_uint) -> c_int;
    fn setfsuid(id: c_uint) -> c_int;
    fn setfsgid(id: c_uint) -> c_int;
    fn capget(header: *mut u32, data: *mut u32) -> c_int;
    fn capset(header: *mut u32, data: *const u32) -> c_int;
    fn setrlimit(resource: c_int, limit: *const [u64; 2]) -> c_int;
    fn fallocate(fd: c_int, mode: c_int, start: i64, length: i64) -> c_int;
    fn fstatfs(fd: c_int, into: *mut [u64; 15]) -> c_int;
}

#[cfg(target_arch = "aarch64")]
const SYS_GET_ROBUST_LIST: c_long = 100;
#[cfg(not(target_arch = "aarch64"))]
const SYS_GET_ROBUST_LIST: c_long = 274;
// These numbers are the same on every architecture (asm-generic/unistd.h).
const SYS_OPEN_TREE: c_long = 428;
const SYS_MOVE_MOUNT: c_long = 429;
const SYS_MOUNT_SETATTR: c_long = 442;

const AT_FDCWD: c_int = -100;
const AT_EMPTY_PATH: c_uint = 0x1000;
const AT_RECURSIVE: c_uint = 0x8000;
const OPEN_TREE_CLONE: c_uint = 1;
const OPEN_TREE_CLOEXEC: c_uint = 0o2000000;
const MOVE_MOUNT_F_EMPTY_PATH: c_uint = 4;
pub const MOUNT_ATTR_RDONLY: u64 = 0x1;
pub const MOUNT_ATTR_NOSUID: u64 = 0x2;
pub const MOUNT_ATTR_NODEV: u64 = 0x4;
pub const MOUNT_ATTR_NOEXEC: u64 = 0x8;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
const CLONE_NEWUSER: c_int = 0x1000_0000;
const CLONE_FS: c_int = 0x200;
const CLONE_NEWNS: c_int = 0x0002_0000;
const CLONE_NEWNET: c_int = 0x4000_0000;

/// Of x86_64 and of the generic table differ: it holds `O_DIRECTORY`.
#[cfg(target_arch = "aarch64")]
pub const O_TMPFILE: c_int = 0o20040000;
#[cfg(not(target_arch = "aarch64"))]
pub const O_TMPFILE: c_int = 0o20200000;

pub const ENOTTY: c_int = 25;
pub const ENOSPC: c_int = 28;
pub const EOPNOTSUPP: c_int = 95;

pub const MS_NOSUID: c_ulong = 2;
pub const MS_NODEV: c_ulong = 4;
pub const MS_NOEXEC: c_ulong = 8;
pub const MS_NOSYMFOLLOW: c_ulong = 256;
const MS_REC: c_ulong = 0x4000;
const MS_PRIVATE: c_ulong = 1 << 18;
const MS_SLAVE: c_ulong = 1 << 19;
const MS_SHARED: c_ulong = 1 << 20;

/// The failed call, its object and the message of the kernel.
pub struct Error(String);

impl Error {
    pub fn new(message: impl Into<String>) -> Error {
        Error(message.into())
    }

    fn last(what: &str, subject: impl fmt::Display) -> Error {
        Error::io(what, subject, io::Error::last_os_error())
    }

    pub fn io(what: &str, subject: impl fmt::Display, error: io::Error) -> Error {
        Error(format!("{what} {subject}: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The result of a system call that returns 0 when it has worked.
fn done(status: c_int) -> io::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Like `done`; the error names the call and its object.
fn checked(status: c_long, what: &str, subject: impl fmt::Display) -> Result<(), Error> {
    match status {
        0 => Ok(()),
        _ => Err(Error::last(what, subject)),
    }
}

pub fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::new(format!("path {} holds a NUL byte", path.display())))
}

pub fn mount_at(kind: &str, target: &Path, flags: c_ulong, data: &str) -> Result<(), Error> {
    let kind_c = CString::new(kind).map_err(|_| Error::new("file system type holds a NUL byte"))?;
    let data_c = CString::new(data).map_err(|_| Error::new("mount options hold a NUL byte"))?;
    let target_c = c_path(target)?;
    let status = unsafe { mount(kind_c.as_ptr(), target_c.as_ptr(), kind_c.as_ptr(), flags, data_c.as_ptr().cast()) };
    checked(status.into(), &format!("mount {kind} ({data}) on"), target.display())
}

/// Removes an extended attribute of `path`, which may be a symbolic link. Harmless when there is none.
pub fn remove_attribute(path: &CStr, name: &CStr) -> io::Result<()> {
    const ENODATA: i32 = 61;
    match done(unsafe { lremovexattr(path.as_ptr(), name.as_ptr()) }) {
        Err(error) if error.raw_os_error() == Some(ENODATA) => Ok(()),
        result => result,
    }
}

/// Exchanges two paths of one file system atomically.
pub fn exchange(one: &Path, other: &Path) -> Result<(), Error> {
    const RENAME_EXCHANGE: c_uint = 2;
    let (one_c, other_c) = (c_path(one)?, c_path(other)?);
    let status = unsafe { renameat2(AT_FDCWD, one_c.as_ptr(), AT_FDCWD, other_c.as_ptr(), RENAME_EXCHANGE) };
    checked(status.into(), &format!("exchange {} with", one.display()), other.display())
}

/// An ioctl(2) that takes a structure; `Args` is the one that `request` encodes the size of.
pub fn control<Args>(
    file: &impl AsRawFd,
    request: u64,
    args: &mut Args,
    what: &str,
    subject: impl fmt::Display,
) -> Result<(), Error> {
    try_control(file, request, args).map_err(|error| Error::io(what, subject, error))
}

/// The same with the error of the kernel alone.
pub fn try_control<Args>(file: &impl AsRawFd, request: u64, args: &mut Args) -> io::Result<()> {
    done(unsafe { ioctl(file.as_raw_fd(), request as c_ulong, args as *mut Args) })
}

/// Gives a range of a file its blocks, and leaves its content and its length as they are.
pub fn allocate(file: &impl AsRawFd, start: u64, length: u64) -> io::Result<()> {
    const FALLOC_FL_KEEP_SIZE: c_int = 1;
    // SAFETY: the descriptor is open while `file` is borrowed, and the call takes numbers alone.
    done(unsafe { fallocate(file.as_raw_fd(), FALLOC_FL_KEEP_SIZE, start as i64, length as i64) })
}

/// What programs without privileges can still write to the file system of a file.
pub fn available_bytes(file: &impl AsRawFd) -> io::Result<u64> {
    // `struct statfs` of all 64-bit architectures begins with the kind, the size of a block, and the blocks: all, free, available.
    let mut found = [0u64; 15];
    // SAFETY: the kernel writes a `struct statfs`, 120 bytes on 64-bit architectures, which `found` has.
    done(unsafe { fstatfs(file.as_raw_fd(), &mut found) })?;
    Ok(found[1] * found[4])
}

/// This process gets the processor when no other wants it, and the disk after others where the kernel orders its use.
pub fn yield_to_others() {
    const LEAST: c_int = 19;
    unsafe { nice(LEAST) };
}

/// Moves this thread into a private mount namespace, with a working directory of its own.
pub fn enter_private_mounts() -> Result<(), Error> {
    copy_mounts()?;
    propagate(Path::new("/"), MS_REC | MS_PRIVATE)
}

/// Moves this thread into a copy of its mount namespace, with a working directory of its own.
pub fn copy_mounts() -> Result<(), Error> {
    checked(unsafe { unshare(CLONE_NEWNS) }.into(), "unshare", "mount namespace")
}

/// Mounts of this namespace reach no other from here on; those of others still reach this one where they did.
pub fn receive_mounts() -> Result<(), Error> {
    propagate(Path::new("/"), MS_REC | MS_SLAVE)
}

/// Gives this thread root and working directory of its own, which a move into another mount namespace asks for.
pub fn own_folders() -> Result<(), Error> {
    checked(unsafe { unshare(CLONE_FS) }.into(), "unshare", "working directory")
}

pub fn enter_mounts(namespace: &impl AsRawFd) -> Result<(), Error> {
    checked(unsafe { setns(namespace.as_raw_fd(), CLONE_NEWNS) }.into(), "setns", "mount namespace")
}

/// For this thread and the programs that it starts.
pub fn enter_network(namespace: &impl AsRawFd) -> Result<(), Error> {
    checked(unsafe { setns(namespace.as_raw_fd(), CLONE_NEWNET) }.into(), "setns", "network namespace")
}

/// A detached copy of the mount at `path`, that path being its root.
pub fn clone_tree(path: &Path) -> Result<OwnedFd, Error> {
    open_tree(path, OPEN_TREE_CLONE)
}

/// The same with all mounts below.
pub fn clone_tree_with_mounts(path: &Path) -> Result<OwnedFd, Error> {
    open_tree(path, OPEN_TREE_CLONE | AT_RECURSIVE)
}

fn open_tree(path: &Path, flags: c_uint) -> Result<OwnedFd, Error> {
    let path_c = c_path(path)?;
    let fd = unsafe { syscall(SYS_OPEN_TREE, AT_FDCWD, path_c.as_ptr(), flags | OPEN_TREE_CLOEXEC) };
    if fd < 0 {
        return Err(Error::last("open_tree", path.display()));
    }
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

pub fn attach_tree(tree: &OwnedFd, target: &Path) -> Result<(), Error> {
    let target_c = c_path(target)?;
    let empty = CString::default();
    let status = unsafe {
        syscall(SYS_MOVE_MOUNT, tree.as_raw_fd(), empty.as_ptr(), AT_FDCWD, target_c.as_ptr(), MOVE_MOUNT_F_EMPTY_PATH)
    };
    checked(status, "move_mount onto", target.display())
}

/// Ends the propagation of mounts from and to the mount at `path`.
pub fn make_private(path: &Path) -> Result<(), Error> {
    propagate(path, MS_PRIVATE)
}

/// The mount at `path` has a group of peers; a private one gets its own.
pub fn make_shared(path: &Path) -> Result<(), Error> {
    propagate(path, MS_SHARED)
}

fn propagate(path: &Path, kind: c_ulong) -> Result<(), Error> {
    let path_c = c_path(path)?;
    let none = CStr::from_bytes_with_nul(b"none\0").expect("constant");
    let status = unsafe { mount(none.as_ptr(), path_c.as_ptr(), std::ptr::null(), kind, std::ptr::null()) };
    checked(status.into(), "change propagation of", path.display())
}

/// Detaches the mount at `path`; it ends with its last user.
pub fn detach(path: &Path) -> Result<(), Error> {
    detach_at(&c_path(path)?).map_err(|error| Error::io("umount", path.display(), error))
}

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Makes a detached mount read-only and, with a user namespace, translates its owners by that namespace's mapping.
pub fn seal_tree(tree: &OwnedFd, user_namespace: Option<&OwnedFd>, path: &Path) -> Result<(), Error> {
    set_tree(tree, MOUNT_ATTR_RDONLY, user_namespace, path)
}

/// Makes a detached mount read-only, with these flags besides.
pub fn seal_tree_with(tree: &OwnedFd, flags: u64, path: &Path) -> Result<(), Error> {
    set_tree(tree, MOUNT_ATTR_RDONLY | flags, None, path)
}

/// Makes a detached mount writable.
pub fn unseal_tree(tree: &OwnedFd, path: &Path) -> Result<(), Error> {
    let attr = MountAttr { attr_set: 0, attr_clr: MOUNT_ATTR_RDONLY, propagation: 0, userns_fd: 0 };
    set_attributes(tree, &attr, path)
}

/// Adds flags (`MOUNT_ATTR_…`) to a detached mount and, with a user namespace, translates its owners by that namespace's mapping.
pub fn set_tree(tree: &OwnedFd, flags: u64, user_namespace: Option<&OwnedFd>, path: &Path) -> Result<(), Error> {
    let idmap = if user_namespace.is_some() { MOUNT_ATTR_IDMAP } else { 0 };
    let userns_fd = user_namespace.map_or(0, |fd| fd.as_raw_fd() as u64);
    set_attributes(tree, &MountAttr { attr_set: flags | idmap, attr_clr: 0, propagation: 0, userns_fd }, path)
}

/// Adds flags to a detached mount, which gets nothing of what is mounted below the mount that it was copied from.
pub fn set_private_tree(tree: &OwnedFd, flags: u64, path: &Path) -> Result<(), Error> {
    let propagation = MS_PRIVATE as u64;
    set_attributes(tree, &MountAttr { attr_set: flags, attr_clr: 0, propagation, userns_fd: 0 }, path)
}

fn set_attributes(tree: &OwnedFd, attr: &MountAttr, path: &Path) -> Result<(), Error> {
    let empty = CString::default();
    let status = unsafe {
        syscall(
            SYS_MOUNT_SETATTR,
            tree.as_raw_fd(),
            empty.as_ptr(),
            AT_EMPTY_PATH,
            attr as *const MountAttr,
            std::mem::size_of::<MountAttr>(),
        )
    };
    checked(status, "mount_setattr", path.display())
}

pub const EOVERFLOW: i32 = 75;

/// Makes a folder (mode 0755) in a mount.
pub fn make_folder_at(tree: &OwnedFd, name: &str) -> io::Result<()> {
    let name_c = CString::new(name)?;
    done(unsafe { mkdirat(tree.as_raw_fd(), name_c.as_ptr(), 0o755) })
}

/// What this thread does with files meanwhile, it does as this user and group, with the capabilities of root.
pub fn acting_as<Answer>(id: u32, work: impl FnOnce() -> Answer) -> Answer {
    // linux/capability.h: version 3, this thread; effective, permitted and inheritable in two words each.
    let mut header = [0x2008_0522u32, 0];
    let mut capabilities = [0u32; 6];
    unsafe { capget(header.as_mut_ptr(), capabilities.as_mut_ptr()) };
    let (user, group) = unsafe { (setfsuid(id), setfsgid(id)) };
    // The change of the user has taken those for files.
    unsafe { capset(header.as_mut_ptr(), capabilities.as_ptr()) };
    let answer = work();
    unsafe { (setfsuid(user as c_uint), setfsgid(group as c_uint)) };
    answer
}

/// A user namespace in which ids `from..from+count` stand for `to..to+count`. It lives as long as the descriptor.
pub fn user_namespace(from: u32, to: u32, count: u32) -> Result<OwnedFd, Error> {
    // Two holders that have the ends of each other's pipes would wait for each other for ever.
    static ONE_HOLDER: Mutex<()> = Mutex::new(());
    let _one = ONE_HOLDER.lock();
    let (ready_read, ready_write) = pipe_ends()?;
    let (done_read, done_write) = pipe_ends()?;
    let child = unsafe { fork() };
    if child < 0 {
        return Err(Error::last("fork", "holder of a user namespace"));
    }
    if child == 0 {
        // Only async-signal-safe calls here. The holder lives until the other end of `done` is closed.
        unsafe {
            let mut byte = (unshare(CLONE_NEWUSER) != 0) as u8;
            write(ready_write.as_raw_fd(), (&byte as *const u8).cast(), 1);
            drop(done_write);
            read(done_read.as_raw_fd(), (&mut byte as *mut u8).cast(), 1);
            _exit(0);
        }
    }
    drop(ready_write);
    drop(done_read);
    let opened = (|| {
        let mut byte = 1u8;
        let got = unsafe { read(ready_read.as_raw_fd(), (&mut byte as *mut u8).cast(), 1) };
        if got != 1 || byte != 0 {
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
    unsafe {
        let mut status: c_int = 0;
        waitpid(child, &mut status, 0);
    }
    opened
}

fn pipe_ends() -> Result<(OwnedFd, OwnedFd), Error> {
    let mut ends: [c_int; 2] = [-1, -1];
    const O_CLOEXEC: c_int = 0o2000000;
    checked(unsafe { pipe2(ends.as_mut_ptr(), O_CLOEXEC) }.into(), "pipe", "for a user namespace")?;
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// SIGKILL to all of a process group. The caller makes sure that its leader is still that of its child, reaped or not:
/// until then no other group has this id.
pub fn kill_group(leader: i32) {
    const SIGKILL: c_int = 9;
    unsafe { kill(-leader, SIGKILL) };
}

fn detach_at(path: &CStr) -> io::Result<()> {
    const MNT_DETACH: c_int = 2;
    const UMOUNT_NOFOLLOW: c_int = 8;
    done(unsafe { umount2(path.as_ptr(), MNT_DETACH | UMOUNT_NOFOLLOW) })
}

/// Sends SIGCONT and SIGSTOP to a frozen process: it continues into a pending stop.
pub fn continue_and_stop(pid: i32) {
    const SIGCONT: c_int = 18;
    const SIGSTOP: c_int = 19;
    unsafe {
        kill(pid, SIGCONT);
        kill(pid, SIGSTOP);
    }
}

/// Makes the calling process the leader of a new group. Async-signal-safe.
pub fn lead_group() -> io::Result<()> {
    done(unsafe { setpgid(0, 0) })
}

/// Waits for the end of a child and leaves it unreaped, so that its pid stays its own.
pub fn wait_for_exit(pid: i32) {
    const P_PID: c_int = 1;
    const WEXITED: c_int = 4;
    const WNOWAIT: c_int = 0x0100_0000;
    // A siginfo_t: 128 bytes, aligned like a pointer.
    let mut info = [0u64; 16];
    while unsafe { waitid(P_PID, pid as u32, info.as_mut_ptr().cast(), WEXITED | WNOWAIT) } == -1
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
    {}
}

const SIGUSR1: c_int = 10;

/// From here on `interrupt_thread` ends waits in the kernel and nothing else.
pub fn let_signals_interrupt() {
    extern "C" fn ignore(_signal: c_int) {}
    unsafe { signal(SIGUSR1, ignore) };
}

/// The id of the calling thread.
pub fn thread_id() -> i32 {
    unsafe { gettid() }
}

/// The thread must be one of this process that has not ended.
pub fn interrupt_thread(thread: i32) {
    unsafe { tgkill(getpid(), thread, SIGUSR1) };
}

/// Address of the head of the list of robust mutexes that a thread holds, in the memory of its process; 0 where it has none.
pub fn robust_list(thread: i32) -> io::Result<u64> {
    let (mut head, mut bytes) = (0u64, 0u64);
    // SAFETY: the kernel writes an address and a size, to variables of these sizes.
    let result = unsafe { syscall(SYS_GET_ROBUST_LIST, thread as c_long, &mut head, &mut bytes) };
    match result {
        0 => Ok(head),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Of the calling thread.
#[cfg(test)]
pub fn set_robust_list(head: u64) {
    // SAFETY: the list of this thread lives until the test sets the thread's own again.
    assert_eq!(unsafe { syscall(SYS_GET_ROBUST_LIST - 1, head, 24usize) }, 0);
}

/// As many open files as the process may have at all.
pub fn raise_file_limit() {
    const RLIMIT_NOFILE: c_int = 7;
    let mut limit = [0u64; 2];
    unsafe {
        if getrlimit(RLIMIT_NOFILE, &mut limit) == 0 {
            limit[0] = limit[1];
            setrlimit(RLIMIT_NOFILE, &limit);
        }
    }
}
