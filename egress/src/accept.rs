//! Takes the connections of sandboxes, and has each served by what it speaks.

use crate::connection::Connection;
use crate::egress::Egress;
use crate::explicit;
use crate::limits::SILENCE;
use crate::model::{Decision, Entry, Protocol};
use crate::opaque;
use crate::original::original;
use crate::prefixed::Prefixed;
use crate::refuse;
use crate::sniff::{sniff, Kind, Sniffed};
use crate::splice;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout_at, Instant};

/// After a fault of `accept`, most likely for want of descriptors.
const PAUSE: Duration = Duration::from_millis(20);
/// In which a cut connection may report before it is dropped.
const CUT_GRACE: Duration = Duration::from_millis(300);
/// A ClientHello of a usual size, and the head of a small request, with room to read.
const DECIDED_BYTES_MAX: usize = 4 * 1024;
/// Where servers speak first (FTP, SSH, telnet, SMTP, POP3, IMAP, submission, MySQL): a client that is silent there is not waited for.
const SERVER_FIRST_PORTS: [u16; 8] = [21, 22, 23, 25, 110, 143, 587, 3306];

/// An accepted connection on its way to a decision.
pub(crate) struct Undecided {
    pub connection: Connection,
    pub stream: TcpStream,
    /// What was read of it.
    pub buffer: Vec<u8>,
    /// The name that the client told the proxy.
    pub told: Option<String>,
    /// Of those whose first bytes are awaited; absent once they are clear and few.
    pub permit: Option<OwnedSemaphorePermit>,
    /// By when its first bytes must be clear.
    pub end: Instant,
}

impl Undecided {
    /// Its place among the undecided is free for another, unless it keeps more than the usual bytes until the host is dialled.
    pub fn decided(&mut self) {
        if self.buffer.capacity() <= DECIDED_BYTES_MAX {
            self.permit = None;
        }
    }
}

pub async fn serve(egress: Arc<Egress>, listener: TcpListener) -> io::Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => take(&egress, stream, peer),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Who has no plan, or too much open, is reset without a task.
fn take(egress: &Arc<Egress>, stream: TcpStream, peer: SocketAddr) {
    let (Some(sandbox), Ok(original)) = (egress.sandboxes.at(peer.ip()), original(&stream)) else {
        return refuse::reset(stream);
    };
    if original == egress.listen && original != egress.explicit {
        return refuse::reset(stream);
    }
    let refused = |reason: &str| {
        let address = Some(original.ip());
        let entry = Entry {
            address,
            reason: Some(reason.into()),
            ..Entry::new(Decision::Denied, Protocol::Tcp, original.port())
        };
        sandbox.report(entry, &egress.output);
    };
    let Some(connection) = Connection::open(egress, &sandbox, original) else {
        refused("too many open connections");
        return refuse::reset(stream);
    };
    let _ = stream.set_nodelay(true);
    let end = Instant::now() + Duration::from_millis(egress.limits.sniff_timeout_ms);
    let mut undecided = Undecided { connection, stream, buffer: Vec::new(), told: None, permit: None, end };
    let through_proxy = original == egress.explicit;
    tokio::spawn(async move {
        // Nothing is read of a connection that waits for its place: it waits in the kernel.
        match timeout_at(end, sandbox.deciding.clone().acquire_owned()).await {
            Ok(permit) => undecided.permit = permit.ok(),
            Err(_) => {
                report_refusal(&undecided, Protocol::Tcp, "too many connections whose first bytes are awaited");
                return refuse::reset(undecided.stream);
            }
        }
        if through_proxy {
            explicit::serve(undecided).await;
        } else {
            route(undecided, Some(SILENCE)).await;
        }
    });
}

/// Serves a connection whose first bytes may still be to come.
pub(crate) async fn route(mut undecided: Undecided, mut silence: Option<Duration>) {
    loop {
        let Undecided { connection, stream, buffer, end, .. } = &mut undecided;
        let sniffed = tokio::select! {
            sniffed = sniff(stream, buffer, silence, *end) => sniffed,
            () = connection.cut() => return refuse::reset(undecided.stream),
        };
        match sniffed {
            Ok(Sniffed::Kind(kind)) => return serve_kind(undecided, kind).await,
            Ok(Sniffed::Silent) if silence.is_some() => match opaque::pass_silent(undecided).await {
                None => return,
                Some(back) => undecided = back,
            },
            Ok(Sniffed::Silent | Sniffed::Late) => {
                report_refusal(&undecided, Protocol::Tcp, "its first bytes did not come in time");
                return refuse::reset(undecided.stream);
            }
            // Without a byte there was nothing to decide.
            Ok(Sniffed::Closed) | Err(_) => return,
        }
        if SERVER_FIRST_PORTS.contains(&undecided.connection.port()) {
            let names = opaque::names(&undecided).await;
            return opaque::refuse(undecided, &names);
        }
        silence = None;
    }
}

pub(crate) async fn serve_kind(mut undecided: Undecided, kind: Kind) {
    undecided.decided();
    match kind {
        Kind::Tls(hello) => Box::pin(splice::serve_tls(undecided, hello)).await,
        Kind::Http => {
            let Undecided { connection, stream, buffer, told, permit, .. } = undecided;
            drop(permit);
            let stream = Prefixed::new(buffer, stream);
            let served = crate::http::serve_plain(connection.clone(), told, stream, false);
            until_cut(&connection, Box::pin(served)).await;
        }
        Kind::Opaque => opaque::serve(undecided).await,
        Kind::Broken if crate::policy::lets_all_pass(&undecided.connection.plan()) => opaque::serve(undecided).await,
        Kind::Broken => {
            report_refusal(&undecided, Protocol::Tcp, "it begins as TLS or HTTP and is neither");
            refuse::reset(undecided.stream);
        }
    }
}

/// Has the HTTP half a moment to end what it serves by itself.
pub(crate) async fn until_cut(connection: &Connection, served: impl Future<Output = ()>) {
    tokio::select! {
        () = served => {}
        () = async { connection.cut().await; sleep(CUT_GRACE).await } => {}
    }
}

fn report_refusal(undecided: &Undecided, protocol: Protocol, reason: &str) {
    let connection = &undecided.connection;
    connection.report(Entry {
        host: undecided.told.clone(),
        address: connection.address(),
        reason: Some(reason.to_owned()),
        ms: connection.opened().elapsed().as_millis() as u64,
        ..Entry::new(Decision::Denied, protocol, connection.port())
    });
}
