//! The functions of libc and the structures of the kernel that this crate uses: the only declarations of both in Atoll's programs.
//! docs/decisions/0034-own-libc-declarations.md says why they do not come from the crate `libc`.

pub use std::os::raw::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

extern "C" {
    pub fn _exit(status: c_int) -> !;
    pub fn capget(header: *mut CapabilityHeader, data: *mut CapabilityData) -> c_int;
    pub fn capset(header: *mut CapabilityHeader, data: *const CapabilityData) -> c_int;
    pub fn chdir(path: *const c_char) -> c_int;
    pub fn clock_gettime(clock: c_int, time: *mut TimeSpec) -> c_int;
    pub fn close(fd: c_int) -> c_int;
    pub fn connect(fd: c_int, address: *const UnixAddress, length: u32) -> c_int;
    pub fn epoll_create1(flags: c_int) -> c_int;
    pub fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut EpollEvent) -> c_int;
    pub fn epoll_wait(epoll: c_int, events: *mut EpollEvent, most: c_int, timeout_ms: c_int) -> c_int;
    pub fn eventfd(initial: c_uint, flags: c_int) -> c_int;
    pub fn fallocate(fd: c_int, mode: c_int, start: i64, length: i64) -> c_int;
    pub fn fchdir(folder: c_int) -> c_int;
    pub fn fchmod(file: c_int, mode: c_uint) -> c_int;
    pub fn fchmodat(folder: c_int, name: *const c_char, mode: c_uint, flags: c_int) -> c_int;
    pub fn fchown(fd: c_int, uid: c_uint, gid: c_uint) -> c_int;
    pub fn fchownat(folder: c_int, name: *const c_char, uid: c_uint, gid: c_uint, flags: c_int) -> c_int;
    pub fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    pub fn fgetxattr(file: c_int, name: *const c_char, value: *mut c_void, size: usize) -> isize;
    pub fn flistxattr(file: c_int, names: *mut c_char, size: usize) -> isize;
    pub fn fork() -> c_int;
    pub fn fsetxattr(file: c_int, name: *const c_char, value: *const c_void, size: usize, flags: c_int) -> c_int;
    pub fn fstatfs(fd: c_int, found: *mut StatFs) -> c_int;
    pub fn geteuid() -> c_uint;
    pub fn getpgid(pid: c_int) -> c_int;
    pub fn getpid() -> c_int;
    pub fn getrlimit(resource: c_int, limit: *mut FileLimit) -> c_int;
    pub fn getsockname(fd: c_int, address: *mut c_void, length: *mut u32) -> c_int;
    pub fn getsockopt(fd: c_int, level: c_int, option: c_int, value: *mut c_void, length: *mut u32) -> c_int;
    pub fn gettid() -> c_int;
    pub fn if_nametoindex(name: *const c_char) -> c_uint;
    pub fn inotify_add_watch(inotify: c_int, path: *const c_char, mask: u32) -> c_int;
    pub fn inotify_init1(flags: c_int) -> c_int;
    pub fn inotify_rm_watch(inotify: c_int, watch: c_int) -> c_int;
    pub fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
    pub fn kill(pid: c_int, signal: c_int) -> c_int;
    pub fn linkat(from: c_int, path: *const c_char, to: c_int, name: *const c_char, flags: c_int) -> c_int;
    pub fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int;
    pub fn mallopt(parameter: c_int, value: c_int) -> c_int;
    pub fn malloc_trim(pad: usize) -> c_int;
    pub fn mkdirat(folder: c_int, name: *const c_char, mode: c_uint) -> c_int;
    pub fn mknodat(folder: c_int, name: *const c_char, mode: c_uint, device: u64) -> c_int;
    pub fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    pub fn nice(more: c_int) -> c_int;
    pub fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    pub fn pipe2(ends: *mut c_int, flags: c_int) -> c_int;
    pub fn poll(entries: *mut PollFd, count: c_ulong, timeout_ms: c_int) -> c_int;
    pub fn prctl(option: c_int, ...) -> c_int;
    pub fn read(fd: c_int, into: *mut c_void, count: usize) -> isize;
    pub fn readlinkat(folder: c_int, name: *const c_char, into: *mut c_char, count: usize) -> isize;
    pub fn recv(fd: c_int, into: *mut c_void, length: usize, flags: c_int) -> isize;
    pub fn renameat2(from: c_int, one: *const c_char, to: c_int, other: *const c_char, flags: c_uint) -> c_int;
    pub fn sendmsg(fd: c_int, message: *const Message, flags: c_int) -> isize;
    pub fn setfsgid(gid: c_uint) -> c_int;
    pub fn setfsuid(uid: c_uint) -> c_int;
    pub fn setgid(gid: c_uint) -> c_int;
    pub fn setgroups(count: usize, groups: *const c_uint) -> c_int;
    pub fn setns(fd: c_int, kind: c_int) -> c_int;
    pub fn setpgid(pid: c_int, group: c_int) -> c_int;
    pub fn setrlimit(resource: c_int, limit: *const FileLimit) -> c_int;
    pub fn setsid() -> c_int;
    pub fn setsockopt(fd: c_int, level: c_int, option: c_int, value: *const c_void, length: u32) -> c_int;
    pub fn setuid(uid: c_uint) -> c_int;
    pub fn sigaddset(set: *mut SignalSet, signal: c_int) -> c_int;
    pub fn signal(signal: c_int, handler: usize) -> usize;
    pub fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    pub fn sigtimedwait(set: *const SignalSet, info: *mut c_void, timeout: *const TimeSpec) -> c_int;
    pub fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    pub fn symlinkat(target: *const c_char, folder: c_int, name: *const c_char) -> c_int;
    pub fn syscall(number: c_long, ...) -> c_long;
    pub fn tgkill(process: c_int, thread: c_int, signal: c_int) -> c_int;
    pub fn umask(mask: c_uint) -> c_uint;
    pub fn umount2(target: *const c_char, flags: c_int) -> c_int;
    pub fn unlinkat(folder: c_int, name: *const c_char, flags: c_int) -> c_int;
    pub fn unshare(flags: c_int) -> c_int;
    pub fn utimensat(folder: c_int, name: *const c_char, times: *const [TimeSpec; 2], flags: c_int) -> c_int;
    pub fn waitid(kind: c_int, id: u32, info: *mut c_void, options: c_int) -> c_int;
    pub fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    pub fn write(fd: c_int, from: *const c_void, count: usize) -> isize;
}

// x86_64 has numbers of its own; aarch64 has those of asm-generic, as both have for newer calls.
#[cfg(target_arch = "aarch64")]
mod of_architecture {
    pub const SYS_GET_ROBUST_LIST: super::c_long = 100;
    pub const SYS_SETGROUPS: super::c_long = 159;
    pub const O_DIRECTORY: i32 = 0o40000;
    pub const O_NOFOLLOW: i32 = 0o100000;
}
#[cfg(not(target_arch = "aarch64"))]
mod of_architecture {
    pub const SYS_GET_ROBUST_LIST: super::c_long = 274;
    pub const SYS_SETGROUPS: super::c_long = 116;
    pub const O_DIRECTORY: i32 = 0o200000;
    pub const O_NOFOLLOW: i32 = 0o400000;
}
pub use of_architecture::*;

pub const SYS_PIDFD_SEND_SIGNAL: c_long = 424;
pub const SYS_OPEN_TREE: c_long = 428;
pub const SYS_MOVE_MOUNT: c_long = 429;
pub const SYS_PIDFD_OPEN: c_long = 434;
pub const SYS_OPENAT2: c_long = 437;
pub const SYS_PIDFD_GETFD: c_long = 438;
pub const SYS_MOUNT_SETATTR: c_long = 442;

pub const O_WRONLY: c_int = 1;
pub const O_RDWR: c_int = 2;
pub const O_CREAT: c_int = 0o100;
pub const O_EXCL: c_int = 0o200;
pub const O_NOCTTY: c_int = 0o400;
pub const O_NONBLOCK: c_int = 0o4000;
pub const O_CLOEXEC: c_int = 0o2000000;
pub const O_PATH: c_int = 0o10000000;
pub const O_TMPFILE: c_int = 0o20000000 | O_DIRECTORY;

pub const AT_FDCWD: c_int = -100;
pub const AT_SYMLINK_NOFOLLOW: c_int = 0x100;
pub const AT_REMOVEDIR: c_int = 0x200;
pub const AT_SYMLINK_FOLLOW: c_int = 0x400;
pub const AT_EMPTY_PATH: c_uint = 0x1000;
pub const AT_RECURSIVE: c_uint = 0x8000;

pub const F_SETFD: c_int = 2;
pub const F_GETFL: c_int = 3;
pub const F_SETFL: c_int = 4;
pub const FD_CLOEXEC: c_int = 1;

pub const AF_UNIX: c_int = 1;
pub const AF_INET: c_int = 2;
pub const AF_INET6: c_int = 10;
pub const SOCK_STREAM: c_int = 1;
pub const SOCK_RAW: c_int = 3;
pub const SOL_SOCKET: c_int = 1;

/// errno(3).
pub const EPERM: c_int = 1;
pub const ENOENT: c_int = 2;
pub const ESRCH: c_int = 3;
pub const ENXIO: c_int = 6;
pub const EBADF: c_int = 9;
pub const EAGAIN: c_int = 11;
pub const EBUSY: c_int = 16;
pub const EXDEV: c_int = 18;
pub const ENOTDIR: c_int = 20;
pub const EISDIR: c_int = 21;
pub const EINVAL: c_int = 22;
pub const ENOTTY: c_int = 25;
pub const ENOSPC: c_int = 28;
pub const EROFS: c_int = 30;
pub const ENOTEMPTY: c_int = 39;
pub const ELOOP: c_int = 40;
pub const ENODATA: c_int = 61;
pub const EOVERFLOW: c_int = 75;
pub const ENOTSOCK: c_int = 88;
pub const EOPNOTSUPP: c_int = 95;
pub const ENOBUFS: c_int = 105;
pub const ETIMEDOUT: c_int = 110;
pub const ECONNREFUSED: c_int = 111;
pub const EDQUOT: c_int = 122;

#[repr(C)]
pub struct CapabilityHeader {
    pub version: u32,
    /// 0: the calling thread.
    pub pid: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CapabilityData {
    pub effective: u32,
    pub permitted: u32,
    pub inheritable: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct TimeSpec {
    pub seconds: c_long,
    pub nanoseconds: c_long,
}

/// `struct rlimit`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileLimit {
    pub soft: u64,
    pub hard: u64,
}

/// `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PollFd {
    pub(crate) fd: c_int,
    pub(crate) events: i16,
    pub revents: i16,
}

/// `struct epoll_event`, packed on this architecture alone.
#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(packed))]
pub struct EpollEvent {
    pub events: u32,
    pub key: u64,
}

/// `sigset_t`.
pub type SignalSet = [u64; 16];

/// `struct statfs` of all 64-bit architectures: 120 bytes.
#[repr(C)]
pub struct StatFs {
    pub kind: c_long,
    pub block_bytes: c_long,
    pub blocks: u64,
    pub free_blocks: u64,
    pub available_blocks: u64,
    pub rest: [u64; 10],
}

pub const UNIX_PATH_BYTES: usize = 108;

/// `struct sockaddr_un`.
#[repr(C)]
pub struct UnixAddress {
    pub family: u16,
    pub path: [u8; UNIX_PATH_BYTES],
}

/// `struct iovec`.
#[repr(C)]
pub struct Part {
    pub start: *const c_void,
    pub length: usize,
}

/// `struct msghdr`.
#[repr(C)]
pub struct Message {
    pub name: *const c_void,
    pub name_length: u32,
    pub parts: *const Part,
    pub part_count: usize,
    pub control: *const Rights,
    pub control_length: usize,
    pub flags: c_int,
}

/// `struct cmsghdr` with one descriptor.
#[repr(C)]
pub struct Rights {
    pub length: usize,
    pub level: c_int,
    pub kind: c_int,
    pub fd: c_int,
    pub padding: c_int,
}

/// `struct open_how` (openat2(2)).
#[repr(C)]
pub struct OpenHow {
    pub flags: u64,
    pub mode: u64,
    pub resolve: u64,
}

pub const RESOLVE_NO_XDEV: u64 = 0x01;
pub const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
pub const RESOLVE_NO_SYMLINKS: u64 = 0x04;
pub const RESOLVE_BENEATH: u64 = 0x08;
pub const RESOLVE_IN_ROOT: u64 = 0x10;

/// `struct mount_attr` (mount_setattr(2)).
#[repr(C)]
pub struct MountAttr {
    pub attr_set: u64,
    pub attr_clr: u64,
    pub propagation: u64,
    pub userns_fd: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    #[test]
    fn structures_have_the_sizes_of_the_kernel() {
        assert_eq!((size_of::<StatFs>(), size_of::<PollFd>(), size_of::<UnixAddress>()), (120, 8, 110));
        assert_eq!((size_of::<Message>(), size_of::<Part>(), size_of::<Rights>()), (56, 16, 24));
        assert_eq!((size_of::<OpenHow>(), size_of::<MountAttr>(), size_of::<CapabilityData>()), (24, 32, 12));
        let packed = cfg!(target_arch = "x86_64");
        assert_eq!(size_of::<EpollEvent>(), if packed { 12 } else { 16 });
    }
}
