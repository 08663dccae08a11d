//! One accepted connection of a sandbox: what it is asked about, and when it must end.
//!
//! States: undecided (nothing is held) → let through (holds what it was let through to) → cut. Each new plan judges what is held again.

use crate::compiled::CompiledPlan;
use crate::dial::{self, DialError};
use crate::egress::Egress;
use crate::limits::HELD_MAX;
use crate::model::Entry;
use crate::policy::{self, Target};
use crate::sandboxes::{lock, Sandbox};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::net::TcpStream;
use tokio::sync::Notify;

const LIVE: u8 = 0;
/// The plan refuses what the connection is used for.
pub const REFUSED: u8 = 1;
/// The sandbox is not known any more.
pub const GONE: u8 = 2;

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Cheap to clone. Its place among the open connections of the sandbox is free when the last clone is dropped.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

pub(crate) struct Inner {
    egress: Arc<Egress>,
    sandbox: Arc<Sandbox>,
    number: u64,
    opened: Instant,
    state: Mutex<State>,
    ended: AtomicU8,
    end: Notify,
}

struct State {
    /// Where the client wants to go, as far as it said: absent for a name that it told a proxy.
    address: Option<IpAddr>,
    port: u16,
    held: Vec<Held>,
}

/// What a connection was let through to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Held {
    /// A host of which no request is read here.
    Spliced { host: Option<String>, address: Option<IpAddr>, port: u16 },
    /// A host whose requests are judged one by one.
    Read { host: String, address: Option<IpAddr>, port: u16 },
    /// A protocol without a name.
    Opaque { names: Vec<String>, address: Option<IpAddr>, port: u16 },
}

impl Held {
    fn is_refused(&self, plan: &CompiledPlan) -> bool {
        match self {
            Held::Spliced { host, address, port } => {
                let target = Target { host: host.as_deref(), address: *address, port: *port, request: None };
                policy::decide(plan, &target).is_denied()
                    || policy::must_read_at(plan, host.as_deref(), *address, *port)
            }
            Held::Read { host, address, port } => {
                let target = Target { host: Some(host), address: *address, port: *port, request: None };
                policy::decide(plan, &target).is_denied()
            }
            Held::Opaque { names, address, port } => policy::decide_opaque(plan, names, *address, *port).is_denied(),
        }
    }
}

impl Connection {
    /// Absent when the sandbox, or all together, have as many as they may.
    pub(crate) fn open(egress: &Arc<Egress>, sandbox: &Arc<Sandbox>, original: SocketAddr) -> Option<Connection> {
        let sandboxes = &egress.sandboxes;
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        if sandboxes.connections.fetch_add(1, Ordering::Relaxed) >= egress.limits.connections_max {
            sandboxes.connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let inner = Arc::new(Inner {
            egress: egress.clone(),
            sandbox: sandbox.clone(),
            number,
            opened: Instant::now(),
            state: Mutex::new(State { address: Some(original.ip()), port: original.port(), held: Vec::new() }),
            ended: AtomicU8::new(LIVE),
            end: Notify::new(),
        });
        let max = sandboxes.share(egress, &sandbox.plan());
        sandbox.add(number, Arc::downgrade(&inner), max).then_some(Connection(inner))
    }

    pub fn sandbox_id(&self) -> &str {
        &self.0.sandbox.id
    }

    pub(crate) fn sandbox(&self) -> &Arc<Sandbox> {
        &self.0.sandbox
    }

    pub(crate) fn egress(&self) -> &Arc<Egress> {
        &self.0.egress
    }

    /// The plan in force at this moment; ask again for each request.
    pub fn plan(&self) -> Arc<CompiledPlan> {
        self.0.sandbox.plan()
    }

    /// Resolves when another plan than at the time of the call is in force: a long request is then to be judged again.
    pub async fn plan_changed(&self) {
        let mut plans = self.0.sandbox.plans();
        let _ = plans.changed().await;
    }

    /// The port of the original destination, or of CONNECT.
    pub fn port(&self) -> u16 {
        lock(&self.0.state).port
    }

    /// The address that the sandbox asked for; absent where it told a proxy a name. Rules about networks judge it.
    pub fn address(&self) -> Option<IpAddr> {
        lock(&self.0.state).address
    }

    /// Sets where a client of the explicit proxy wants to go.
    pub(crate) fn set_destination(&self, address: Option<IpAddr>, port: u16) {
        let mut state = lock(&self.0.state);
        (state.address, state.port) = (address, port);
    }

    pub fn opened(&self) -> Instant {
        self.0.opened
    }

    /// Resolves when this connection must end, and stays resolved.
    pub async fn cut(&self) {
        loop {
            let end = self.0.end.notified();
            if self.is_cut() {
                return;
            }
            end.await;
        }
    }

    pub fn is_cut(&self) -> bool {
        self.0.ended.load(Ordering::SeqCst) != LIVE
    }

    /// Why it was cut.
    pub(crate) fn cut_reason(&self) -> &'static str {
        match self.0.ended.load(Ordering::SeqCst) {
            GONE => "the sandbox has ended",
            _ => "refused by a changed policy",
        }
    }

    /// Keeps what the connection is let through to, so that each later plan judges it; the plan in force judges it now.
    pub(crate) fn hold(&self, held: Held) {
        {
            let mut state = lock(&self.0.state);
            if state.held.contains(&held) {
                return;
            }
            if state.held.len() == HELD_MAX {
                state.held.remove(0);
            }
            state.held.push(held);
        }
        self.0.judge_again();
    }

    /// Lets go of what was held: the connection is decided anew.
    pub(crate) fn release(&self) {
        lock(&self.0.state).held.clear();
    }

    /// Fills in the sandbox and the time.
    pub fn report(&self, entry: Entry) {
        self.0.sandbox.report(entry, &self.0.egress.output);
    }

    /// Connects to a host that the plan lets pass: to what the sandbox was told its addresses are, never to what nobody reaches, through the
    /// operator's proxy if there is one. The address is that of the peer, or the proxy's.
    pub async fn dial(&self, host: &str, port: u16) -> Result<(TcpStream, SocketAddr), DialError> {
        let dialled = dial::dial_host(self, host, port, false).await?;
        let address = dialled.address.map(|at| at.ip());
        self.hold(Held::Read { host: host.to_owned(), address, port });
        let address = match dialled.address {
            Some(address) => address,
            None => dialled.stream.peer_addr().map_err(DialError::Failed)?,
        };
        Ok((dialled.stream, address))
    }

    /// What certificates are checked against upstream.
    pub fn upstream_tls(&self) -> Arc<rustls::ClientConfig> {
        self.0.egress.tls.clone()
    }
}

impl Inner {
    pub(crate) fn judge_again(&self) {
        let plan = self.sandbox.plan();
        let refused = lock(&self.state).held.iter().any(|held| held.is_refused(&plan));
        if refused {
            self.end(REFUSED);
        }
    }

    pub(crate) fn end(&self, why: u8) {
        let _ = self.ended.compare_exchange(LIVE, why, Ordering::SeqCst, Ordering::SeqCst);
        self.end.notify_waiters();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.sandbox.remove(self.number);
        self.egress.sandboxes.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
