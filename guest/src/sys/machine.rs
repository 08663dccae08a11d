//! What a sandbox has of its own as a machine: its name, its random numbers, its network interfaces; and the clock of the machine.

use super::{check, O_CLOEXEC};
use std::fs::File;
use std::io;
use std::os::raw::{c_char, c_int, c_long, c_ulong, c_void};
use std::os::unix::io::{AsRawFd, FromRawFd};
use std::time::Duration;

const SIOCGIFFLAGS: c_ulong = 0x8913;
const SIOCSIFFLAGS: c_ulong = 0x8914;
const RNDADDENTROPY: c_ulong = 0x4008_5203;
const AF_INET: c_int = 2;
const SOCK_DGRAM: c_int = 2;
const IFF_UP: i16 = 1;
const CLOCK_BOOTTIME: c_int = 7;

/// `struct ifreq` with the flags member of its union.
#[repr(C)]
struct InterfaceFlags {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

#[repr(C)]
struct TimeSpec {
    seconds: c_long,
    nanoseconds: c_long,
}

extern "C" {
    fn clock_gettime(clock: c_int, time: *mut TimeSpec) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
    #[link_name = "sethostname"]
    fn c_sethostname(name: *const c_char, length: usize) -> c_int;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
}

/// The clock that the kernel takes the start times of processes from.
pub fn since_boot() -> Duration {
    let mut time = TimeSpec { seconds: 0, nanoseconds: 0 };
    unsafe { clock_gettime(CLOCK_BOOTTIME, &mut time) };
    Duration::new(time.seconds as u64, time.nanoseconds as u32)
}

pub fn set_hostname(name: &str) -> io::Result<()> {
    check(unsafe { c_sethostname(name.as_ptr() as *const c_char, name.len()) }).map(|_| ())
}

/// Adds bytes to the kernel's random pool and reseeds its generator at once (random(4)), which takes CAP_SYS_ADMIN.
pub fn add_entropy(seed: &[u8]) -> io::Result<()> {
    let random = std::fs::OpenOptions::new().write(true).open("/dev/urandom")?;
    // struct rand_pool_info: bits, bytes, the bytes.
    let mut info = Vec::with_capacity(8 + seed.len());
    info.extend_from_slice(&((seed.len() * 8) as c_int).to_ne_bytes());
    info.extend_from_slice(&(seed.len() as c_int).to_ne_bytes());
    info.extend_from_slice(seed);
    check(unsafe { ioctl(random.as_raw_fd(), RNDADDENTROPY, info.as_ptr() as *const c_void) }).map(|_| ())
}

/// Brings a network interface up, such as `lo` in a restored network namespace.
pub fn interface_up(name: &str) -> io::Result<()> {
    let mut request = InterfaceFlags { name: [0; 16], flags: 0, rest: [0; 22] };
    if name.is_empty() || name.len() > 15 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    let fd = check(unsafe { socket(AF_INET, SOCK_DGRAM | O_CLOEXEC, 0) })?;
    let socket = unsafe { File::from_raw_fd(fd) };
    check(unsafe { ioctl(socket.as_raw_fd(), SIOCGIFFLAGS, &mut request as *mut InterfaceFlags) })?;
    if request.flags & IFF_UP != 0 {
        return Ok(());
    }
    request.flags |= IFF_UP;
    check(unsafe { ioctl(socket.as_raw_fd(), SIOCSIFFLAGS, &request as *const InterfaceFlags) }).map(|_| ())
}
