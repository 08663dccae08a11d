//! HTTP that is read: each request is decided, parsed and written anew. HTTP/1.1 and HTTP/2 on both sides, each translated into the other.

mod activity;
mod answer;
mod body;
mod forward;
mod head;
mod headers;
mod inflate;
mod outgoing;
mod plan;
mod pool;
mod record;
mod response;
mod secrets;
mod strict;
mod target;
mod upgrade;

pub use answer::refusal;
pub use plan::PlanState;

use crate::connection::Connection;
use crate::mask::Masks;
use crate::model::Protocol;
use crate::tls;
use activity::Activity;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use pool::Pool;
use record::Record;
use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use strict::Strict;
use target::{Authority, Naming};
use tokio::io::{AsyncRead, AsyncWrite};
use upgrade::Judged;

/// Requests of one client of HTTP/2 at once. h2 bounds those that it resets by a setting of its own.
const STREAMS_MAX: u32 = 128;
const RESETS_MAX: usize = 20;
const H2_HEADER_LIST_BYTES_MAX: u32 = strict::HEAD_BYTES_MAX as u32;
/// What a sandbox may send before it hears from us: the windows of the RFC. With larger ones libcurl 7.88 on GnuTLS, which git of Debian 12 has,
/// loses bytes of long bodies now and then.
const H2_STREAM_WINDOW: u32 = 65_535;
const H2_CONNECTION_WINDOW: u32 = 65_535;
const H2_SEND_BYTES_MAX: usize = 64 * 1024;
/// How long a connection that is idle has to end well.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);

/// One client connection on which HTTP is read.
pub(crate) struct Session {
    connection: Connection,
    naming: Naming,
    tls: bool,
    h2: bool,
    pool: Pool,
    masks: Mutex<Masks>,
    activity: Arc<Activity>,
    /// Requests under way: a new plan judges them again.
    open: Mutex<HashMap<u64, Judged>>,
    number: AtomicU64,
}

/// A request under way, until it is dropped.
struct Open {
    session: Arc<Session>,
    number: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.session.open).remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    fn new(connection: Connection, naming: Naming, tls: bool, h2: bool) -> Arc<Session> {
        Arc::new(Session {
            pool: Pool::new(connection.clone(), tls, h2),
            connection,
            naming,
            tls,
            h2,
            masks: Mutex::default(),
            activity: Arc::default(),
            open: Mutex::default(),
            number: AtomicU64::new(0),
        })
    }

    fn masks(&self) -> MutexGuard<'_, Masks> {
        lock(&self.masks)
    }

    /// The address that rules about networks judge. A client of the proxy names a host, not an address.
    fn address(&self) -> Option<IpAddr> {
        if matches!(self.naming, Naming::Absolute) {
            None
        } else {
            self.connection.address()
        }
    }

    fn open(self: &Arc<Self>, judged: Judged) -> Open {
        let number = self.number.fetch_add(1, Relaxed);
        lock(&self.open).insert(number, judged);
        Open { session: self.clone(), number }
    }

    /// Resolves when a new plan refuses a request that is under way.
    async fn refused(&self) {
        loop {
            self.connection.plan_changed().await;
            let plan = self.connection.plan();
            if lock(&self.open).values().any(|judged| self.judge(&plan, judged).is_denied()) {
                return;
            }
        }
    }
}

/// Ends TLS of a connection to `host` and serves the HTTP in it. The ClientHello is still unread in `stream`.
pub async fn serve_tls<S>(connection: Connection, host: String, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let plan = connection.plan();
    let accepted = async {
        let authority =
            Authority::parse(&host).ok_or_else(|| std::io::Error::other("the name of the host is not valid"))?;
        let config = plan.http.server_config(&plan.plan, &authority.host)?;
        let stream = tls::accept(stream, &authority.host, config).await?;
        std::io::Result::Ok((authority, stream))
    };
    let accepted = tokio::select! {
        accepted = Box::pin(accepted) => accepted,
        () = connection.cut() => return,
    };
    drop(plan);
    match accepted {
        Ok((authority, stream)) => {
            let h2 = tls::speaks_h2(stream.get_ref().1.alpn_protocol());
            let session = Session::new(connection, Naming::Fixed(authority), true, h2);
            if h2 {
                Box::pin(serve_h2(session, stream)).await;
            } else {
                Box::pin(serve_h1(session, stream)).await;
            }
        }
        Err(error) => {
            let record = Record::new(connection, Arc::default(), Protocol::Tls);
            record.host(&host, record.port());
            record.fail(None, &format!("TLS with the sandbox failed: {error}"));
        }
    }
}

/// Serves HTTP/1.1 in the clear. With `explicit` the client knows that it speaks to a proxy: each request has an absolute URL. The host of
/// the first request is no matter: each is decided by itself.
pub async fn serve_plain<S>(connection: Connection, _host: Option<String>, stream: S, explicit: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let naming = if explicit { Naming::Absolute } else { Naming::Each };
    serve_h1(Session::new(connection, naming, false, false), stream).await;
}

async fn serve_h1<S>(session: Arc<Session>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let fault = strict::Fault::default();
    let stream = Strict::new(stream, fault.clone(), session.activity.clone());
    let service = session.clone();
    let served = http1::Builder::new()
        .preserve_header_case(true)
        .auto_date_header(false)
        .header_read_timeout(None)
        .max_buf_size(strict::HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(move |request| forward::respond(service.clone(), request)))
        .with_upgrades();
    run(&session, Box::pin(served), |served| served.graceful_shutdown()).await;
    if let Some(reason) = fault.get() {
        let protocol = if session.tls { Protocol::Https } else { Protocol::Http };
        let record = Record::new(session.connection.clone(), session.activity.clone(), protocol);
        if let Naming::Fixed(authority) = &session.naming {
            record.host(&authority.host, session.connection.port());
        }
        record.refuse(400, reason);
    }
}

async fn serve_h2<S>(session: Arc<Session>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = session.clone();
    let served = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_header_list_size(H2_HEADER_LIST_BYTES_MAX)
        .initial_stream_window_size(H2_STREAM_WINDOW)
        .initial_connection_window_size(H2_CONNECTION_WINDOW)
        .max_send_buf_size(H2_SEND_BYTES_MAX)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service_fn(move |request| forward::respond(service.clone(), request)));
    run(&session, Box::pin(served), |served| served.graceful_shutdown()).await;
}

/// Until the client goes, the connection is cut, a new plan refuses what is under way, or nothing has happened for too long.
/// `served` is on the heap, so that no future that is moved holds room for it.
async fn run<C, E>(session: &Session, mut served: Pin<Box<C>>, shut_down: impl FnOnce(Pin<&mut C>))
where
    C: Future<Output = Result<(), E>>,
{
    tokio::select! {
        _ = &mut served => return,
        () = session.pool.trim() => return,
        () = session.connection.cut() => return,
        () = session.refused() => return,
        () = session.activity.expired() => {}
    }
    shut_down(served.as_mut());
    let _ = tokio::time::timeout(GOODBYE_TIMEOUT, served).await;
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod forward_test;
#[cfg(test)]
mod hostile_test;
#[cfg(test)]
mod secrets_test;
