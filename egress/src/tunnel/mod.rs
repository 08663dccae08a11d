//! Two-way copy of bytes that are not read here. An idle tunnel has two sockets and a small task, no buffer.

pub mod pipes;

use pipes::Pipes;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{interval, MissedTickBehavior};

/// Where no pipe is to be had.
const BUFFER_BYTES: usize = 16 * 1024;
/// Looks for activity in one time of idleness.
const LOOKS: u32 = 4;

/// Bytes as the sandbox sees them.
#[derive(Default)]
pub struct Counts {
    pub sent: AtomicU64,
    pub received: AtomicU64,
}

impl Counts {
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub enum End<E> {
    /// Both sides have said all.
    Closed,
    Broken(io::Error),
    Idle,
    Cut,
    /// What was to be sent first was not sent.
    Withheld(E),
}

/// Copies until both sides have ended, one breaks, none says anything for `idle`, or `cut` resolves. `first` gives the bytes that go to the
/// server before all others; the server is heard meanwhile. The end of one side is passed on, and the other goes on.
pub async fn relay<E>(
    client: &TcpStream,
    server: &TcpStream,
    pipes: &Pipes,
    counts: &Counts,
    idle: Duration,
    cut: impl Future<Output = ()>,
    first: impl Future<Output = Result<Vec<u8>, E>>,
) -> End<E> {
    let up = async {
        let bytes = first.await.map_err(End::Withheld)?;
        write_all(server, &bytes, &counts.sent).await.map_err(End::Broken)?;
        drop(bytes);
        pump(client, server, pipes, &counts.sent).await.map_err(End::Broken)
    };
    let down = async { pump(server, client, pipes, &counts.received).await.map_err(End::Broken) };
    tokio::select! {
        biased;
        () = cut => End::Cut,
        ended = async { tokio::try_join!(up, down) } => match ended {
            Ok(_) => End::Closed,
            Err(end) => end,
        },
        () = idleness(counts, idle) => End::Idle,
    }
}

async fn idleness(counts: &Counts, idle: Duration) {
    let mut ticks = interval((idle / LOOKS).max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let (mut before, mut same) = ((0, 0), 0);
    while same < LOOKS {
        ticks.tick().await;
        let now = (counts.sent(), counts.received());
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
}

/// One direction, until its source ends; then the sink is told.
async fn pump(from: &TcpStream, to: &TcpStream, pipes: &Pipes, count: &AtomicU64) -> io::Result<()> {
    loop {
        from.readable().await?;
        let ended = match pipes.take() {
            Some(pipe) => splice_ready(pipe, from, to, count).await?,
            None => copy_ready(from, to, count).await?,
        };
        if ended {
            // SAFETY: the call has no pointers. A sink that is gone already needs no word.
            unsafe { libc::shutdown(to.as_raw_fd(), libc::SHUT_WR) };
            return Ok(());
        }
    }
}

/// Moves what there is; says whether that was the end.
async fn splice_ready(mut pipe: pipes::Pipe, from: &TcpStream, to: &TcpStream, count: &AtomicU64) -> io::Result<bool> {
    loop {
        // The pipe is empty here, so that «would block» is about the socket.
        match from.try_io(Interest::READABLE, || pipe.fill(from)) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(fault) => return Err(fault),
        }
        while pipe.held > 0 {
            match to.try_io(Interest::WRITABLE, || pipe.drain(to)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(moved) => drop(count.fetch_add(moved as u64, Ordering::Relaxed)),
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
                Err(fault) => return Err(fault),
            }
        }
        // Others of this thread get their share of the processor between two fills.
        tokio::task::consume_budget().await;
    }
}

async fn copy_ready(from: &TcpStream, to: &TcpStream, count: &AtomicU64) -> io::Result<bool> {
    let mut buffer = vec![0; BUFFER_BYTES];
    match from.try_read(&mut buffer) {
        Ok(0) => Ok(true),
        Ok(length) => {
            write_all(to, &buffer[..length], count).await?;
            tokio::task::consume_budget().await;
            Ok(false)
        }
        Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(fault) => Err(fault),
    }
}

pub(crate) async fn write_all(to: &TcpStream, mut bytes: &[u8], count: &AtomicU64) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                count.fetch_add(written as u64, Ordering::Relaxed);
            }
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "../tunnel_test.rs"]
mod tests;
