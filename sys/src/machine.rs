//! The random numbers and the clock of the machine.

use crate::check;
use crate::libc::{self, c_int, c_ulong, c_void, TimeSpec};
use std::io;
use std::os::unix::io::AsRawFd;
use std::time::Duration;

const RNDADDENTROPY: c_ulong = 0x4008_5203;
const CLOCK_BOOTTIME: c_int = 7;

/// The time since the machine's boot, by the clock of the start times of processes.
pub fn since_boot() -> Duration {
    let mut time = TimeSpec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the kernel writes a `struct timespec`.
    unsafe { libc::clock_gettime(CLOCK_BOOTTIME, &mut time) };
    Duration::new(time.seconds as u64, time.nanoseconds as u32)
}

/// Adds bytes to the kernel's random pool and reseeds its generator at once (random(4)), which takes CAP_SYS_ADMIN.
pub fn add_entropy(seed: &[u8]) -> io::Result<()> {
    let random = std::fs::OpenOptions::new().write(true).open("/dev/urandom")?;
    // struct rand_pool_info: bits, bytes, the bytes.
    let mut info = Vec::with_capacity(8 + seed.len());
    info.extend_from_slice(&((seed.len() * 8) as c_int).to_ne_bytes());
    info.extend_from_slice(&(seed.len() as c_int).to_ne_bytes());
    info.extend_from_slice(seed);
    // SAFETY: the kernel reads as many bytes behind the two numbers as the second one says.
    check(unsafe { libc::ioctl(random.as_raw_fd(), RNDADDENTROPY, info.as_ptr() as *const c_void) }).map(drop)
}
