//! Connections to the hosts of one client connection. No other client uses them, so that nothing of a sandbox meets another's.
//!
//! HTTP/2 upstream: one connection that all requests share. HTTP/1.1: one for a client that sends one request after another, a few for a client
//! of HTTP/2.

use super::body::Body;
use crate::connection::Connection;
use crate::dial::DialError;
use crate::memory;
use crate::tls;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Hosts that one connection in the clear may have open at once.
const HOSTS_MAX: usize = 4;
/// Connections of HTTP/1.1 for one client of HTTP/2.
const PARALLEL_MAX: usize = 8;
/// A connection that no request uses is closed after this time: it takes more memory than the client's own, and the next request opens another.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
const RESPONSE_HEAD_BYTES_MAX: usize = 128 * 1024;
const H2_STREAM_WINDOW: u32 = 1024 * 1024;
const H2_CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;
const H2_SEND_BYTES_MAX: usize = 64 * 1024;
const H2_HEADER_LIST_BYTES_MAX: u32 = 128 * 1024;

/// Why there is no connection.
pub enum Fault {
    Dial(DialError),
    Tls(std::io::Error),
    Http(hyper::Error),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Dial(error) => write!(f, "{error}"),
            Fault::Tls(error) => write!(f, "TLS to the host failed: {error}"),
            Fault::Http(error) => write!(f, "HTTP to the host failed: {error}"),
        }
    }
}

/// A connection that a request may use.
pub enum Sender {
    H1 { sender: http1::SendRequest<Body>, permit: OwnedSemaphorePermit },
    H2(http2::SendRequest<Body>),
}

struct Host {
    host: String,
    port: u16,
    state: Mutex<State>,
    permits: Arc<Semaphore>,
    /// One connects at a time, so that the others can share what comes of it.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// When the last request ended.
    used: Option<Instant>,
    h2: Option<http2::SendRequest<Body>>,
    idle: Vec<http1::SendRequest<Body>>,
    address: Option<IpAddr>,
}

pub struct Pool {
    connection: Connection,
    tls: bool,
    h2: bool,
    hosts: Mutex<Vec<Arc<Host>>>,
}

/// The host of a connection that is in use.
pub struct Lease(Arc<Host>);

impl Drop for Lease {
    fn drop(&mut self) {
        lock(&self.0.state).used = Some(Instant::now());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// `h2`: the client speaks HTTP/2, so the host may too.
    pub fn new(connection: Connection, tls: bool, h2: bool) -> Self {
        Pool { connection, tls, h2, hosts: Mutex::default() }
    }

    fn host(&self, host: &str, port: u16) -> Arc<Host> {
        let mut hosts = lock(&self.hosts);
        if let Some(found) = hosts.iter().find(|known| known.host == host && known.port == port) {
            return found.clone();
        }
        if hosts.len() == HOSTS_MAX {
            hosts.remove(0);
        }
        let new = Arc::new(Host {
            host: host.to_owned(),
            port,
            state: Mutex::default(),
            permits: Arc::new(Semaphore::new(if self.h2 { PARALLEL_MAX } else { 1 })),
            connecting: tokio::sync::Mutex::new(()),
        });
        hosts.push(new.clone());
        new
    }

    /// A connection to the host: one that is open, or a new one.
    pub async fn sender(&self, host: &str, port: u16) -> Result<(Sender, Lease), Fault> {
        let host = self.host(host, port);
        let lease = Lease(host.clone());
        if let Some(sender) = host.shared() {
            return Ok((Sender::H2(sender), lease));
        }
        let permit = host.permits.clone().acquire_owned().await.map_err(|_| closed())?;
        if let Some(sender) = host.idle() {
            return Ok((Sender::H1 { sender, permit }, lease));
        }
        let _connecting = host.connecting.lock().await;
        if let Some(sender) = host.shared() {
            return Ok((Sender::H2(sender), lease));
        }
        Box::pin(self.connect(&host, permit)).await.map(|sender| (sender, lease))
    }

    /// Closes connections that are idle for too long, for ever.
    pub async fn trim(&self) {
        loop {
            tokio::time::sleep(IDLE_TIMEOUT / 2).await;
            let mut closed = false;
            for host in lock(&self.hosts).iter().filter(|host| Arc::strong_count(host) == 1) {
                let mut state = lock(&host.state);
                if state.used.is_some_and(|used| used.elapsed() >= IDLE_TIMEOUT) {
                    closed |= state.h2.take().is_some() || !state.idle.is_empty();
                    state.idle = Vec::new();
                }
            }
            if closed {
                memory::give_back_soon();
            }
        }
    }

    async fn connect(&self, host: &Arc<Host>, permit: OwnedSemaphorePermit) -> Result<Sender, Fault> {
        let (stream, address) = self.connection.dial(&host.host, host.port).await.map_err(Fault::Dial)?;
        let _ = stream.set_nodelay(true);
        let address: Option<SocketAddr> = address.into();
        lock(&host.state).address = address.map(|address| address.ip());
        if !self.tls {
            return h1(stream, permit).await;
        }
        let config = self.connection.upstream_tls();
        let stream = tls::connect(stream, &host.host, &config, self.h2).await.map_err(Fault::Tls)?;
        if !tls::speaks_h2(stream.get_ref().1.alpn_protocol()) {
            return h1(stream, permit).await;
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(H2_STREAM_WINDOW)
            .initial_connection_window_size(H2_CONNECTION_WINDOW)
            .max_send_buf_size(H2_SEND_BYTES_MAX)
            .max_header_list_size(H2_HEADER_LIST_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(Fault::Http)?;
        tokio::spawn(connection);
        lock(&host.state).h2 = Some(sender.clone());
        Ok(Sender::H2(sender))
    }
}

async fn h1<S>(stream: S, permit: OwnedSemaphorePermit) -> Result<Sender, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::Builder::new()
        .preserve_header_case(true)
        .max_buf_size(RESPONSE_HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(Fault::Http)?;
    tokio::spawn(connection.with_upgrades());
    Ok(Sender::H1 { sender, permit })
}

fn closed() -> Fault {
    Fault::Tls(std::io::Error::other("the connection has ended"))
}

impl Host {
    fn shared(&self) -> Option<http2::SendRequest<Body>> {
        let mut state = lock(&self.state);
        if state.h2.as_ref().is_some_and(http2::SendRequest::is_closed) {
            state.h2 = None;
        }
        state.h2.clone()
    }

    fn idle(&self) -> Option<http1::SendRequest<Body>> {
        let mut state = lock(&self.state);
        while let Some(sender) = state.idle.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }
}

impl Lease {
    pub fn address(&self) -> Option<IpAddr> {
        lock(&self.0.state).address
    }

    /// Takes a connection of HTTP/1.1 back when its response has ended. It is free for the next request when it is ready; if it is closed
    /// instead, a new one takes its place.
    pub fn give_back(self, mut sender: http1::SendRequest<Body>, permit: OwnedSemaphorePermit) {
        if sender.is_ready() {
            lock(&self.0.state).idle.push(sender);
            return;
        }
        if sender.is_closed() {
            return;
        }
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                lock(&self.0.state).idle.push(sender);
            }
            drop(permit);
        });
    }
}
