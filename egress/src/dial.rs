//! Connects on behalf of a sandbox.
//!
//! A host with a name is dialled at the addresses that the sandbox was told, else at what the resolvers say now, never at an address only because
//! the sandbox chose it. Each address is judged: by the plan, and by what the operator denies to all.

use crate::connection::Connection;
use crate::dns::{self, Fault};
use crate::limits::CONNECT_TIMEOUT;
use crate::name::Host;
use crate::policy::{self, Target, Verdict};
use crate::upstream::Destination;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Addresses of one name that are tried.
const ATTEMPTS_MAX: usize = 8;
/// An address that does not answer must not take the time of the next.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(2500);

#[derive(Debug)]
pub enum DialError {
    /// The plan, or what the operator denies to all.
    Refused(Verdict),
    Unresolved(Fault),
    Failed(io::Error),
}

impl DialError {
    /// Whether a decision, not the network, is the cause.
    pub fn is_refusal(&self) -> bool {
        matches!(self, DialError::Refused(_) | DialError::Unresolved(Fault::TooMany))
    }

    /// The rule that refuses, where one does.
    pub fn rule(&self) -> Option<&str> {
        match self {
            DialError::Refused(verdict) => verdict.rule(),
            _ => None,
        }
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialError::Refused(Verdict::Deny { reason, .. }) => f.write_str(reason),
            DialError::Refused(_) => f.write_str("refused"),
            DialError::Unresolved(fault) => fault.fmt(f),
            DialError::Failed(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for DialError {}

pub(crate) struct Dialled {
    pub stream: TcpStream,
    /// Absent where only the operator's proxy knows it.
    pub address: Option<SocketAddr>,
}

/// Connects to a host. `spliced`: its requests will not be read, so that an address where they must be is left out.
pub(crate) async fn dial_host(
    connection: &Connection,
    host: &str,
    port: u16,
    spliced: bool,
) -> Result<Dialled, DialError> {
    let start = Instant::now();
    let finding = timeout(CONNECT_TIMEOUT, find(connection, host, port, spliced));
    let found = finding.await.map_err(|_| DialError::Unresolved(Fault::Failed))??;
    let left = CONNECT_TIMEOUT.saturating_sub(start.elapsed());
    let egress = connection.egress();
    match (&egress.upstream, found) {
        (None, Found::At { addresses, .. }) => connect(&addresses, port, left).await,
        (None, Found::Unknown(_)) => Err(DialError::Unresolved(Fault::Failed)),
        (Some(upstream), found) => {
            let (destination, address) = match found {
                Found::At { name: Some(name), addresses } => {
                    (Destination::Name(name, port), addresses.first().copied())
                }
                Found::At { name: None, addresses } => {
                    let address = *addresses.first().expect("what was found has an address");
                    (Destination::Address(SocketAddr::new(address, port)), Some(address))
                }
                Found::Unknown(name) => (Destination::Name(name, port), None),
            };
            let stream = within(left, upstream.connect(egress, &destination)).await?;
            Ok(Dialled { stream, address: address.map(|address| SocketAddr::new(address, port)) })
        }
    }
}

/// Connects to an address that the plan lets pass by itself.
pub(crate) async fn dial_address(
    connection: &Connection,
    address: SocketAddr,
    names: &[String],
) -> Result<Dialled, DialError> {
    let (egress, plan) = (connection.egress(), connection.plan());
    let by_name = |name: &String| egress.may_reach(&plan, Some(name), address.ip(), Some(address.port()));
    if !names.iter().any(by_name) && !egress.may_reach(&plan, None, address.ip(), Some(address.port())) {
        return Err(unreachable());
    }
    match &egress.upstream {
        None => connect(&[address.ip()], address.port(), CONNECT_TIMEOUT).await,
        Some(upstream) => {
            let stream = within(CONNECT_TIMEOUT, upstream.connect(egress, &Destination::Address(address))).await?;
            Ok(Dialled { stream, address: Some(address) })
        }
    }
}

enum Found {
    /// At least one address, of a name or of itself.
    At { name: Option<String>, addresses: Vec<IpAddr> },
    /// A name that a rule names and that only the operator's proxy can resolve.
    Unknown(String),
}

async fn find(connection: &Connection, host: &str, port: u16, spliced: bool) -> Result<Found, DialError> {
    let egress = connection.egress();
    let name = match Host::parse(host) {
        Some(Host::Name(name)) => name,
        Some(Host::Address(address)) => {
            return match judge(connection, None, address, port, spliced) {
                Some(refusal) => Err(refusal),
                None => Ok(Found::At { name: None, addresses: vec![address] }),
            }
        }
        None => return Err(DialError::Refused(policy::refusal("the name of the host is not valid"))),
    };
    let told = addresses_of(connection, &name).await;
    let original = connection.address();
    let mut refusal = None;
    let mut addresses = Vec::new();
    for address in told.as_deref().unwrap_or_default() {
        let address = IpAddr::V4(*address);
        match judge(connection, Some(&name), address, port, spliced) {
            None if Some(address) == original => addresses.insert(0, address),
            None => addresses.push(address),
            Some(why) => refusal = Some(why),
        }
    }
    if !addresses.is_empty() {
        return Ok(Found::At { name: Some(name), addresses });
    }
    // What the sandbox chose counts only where it could go there without any name.
    if let Some(address) = original.filter(|_| refusal.is_none()) {
        let as_named = judge(connection, Some(&name), address, port, spliced);
        if as_named.is_none() && judge(connection, None, address, port, spliced).is_none() {
            return Ok(Found::At { name: None, addresses: vec![address] });
        }
    }
    match told {
        Err(Fault::Failed) if egress.upstream.is_some() && policy::is_named(&connection.plan(), &name) => {
            Ok(Found::Unknown(name))
        }
        Err(fault) => Err(DialError::Unresolved(fault)),
        Ok(_) => Err(refusal.unwrap_or(DialError::Unresolved(Fault::Failed))),
    }
}

/// What the sandbox was told, while it is valid; else what is told now.
pub(crate) async fn addresses_of(connection: &Connection, name: &str) -> Result<Vec<Ipv4Addr>, Fault> {
    let (egress, sandbox) = (connection.egress(), connection.sandbox());
    let pinned = sandbox.pins().addresses(name, Instant::now());
    if !pinned.is_empty() {
        return Ok(pinned);
    }
    let answer = dns::resolve(egress, sandbox, name).await?;
    let now = Instant::now();
    if !answer.addresses.is_empty() {
        sandbox.pins().add(name, &answer.addresses, answer.ttl(now), now);
    }
    Ok(answer.addresses.clone())
}

fn judge(connection: &Connection, name: Option<&str>, address: IpAddr, port: u16, spliced: bool) -> Option<DialError> {
    let plan = connection.plan();
    let verdict = policy::decide(&plan, &Target { host: name, address: Some(address), port, request: None });
    if verdict.is_denied() {
        return Some(DialError::Refused(verdict));
    }
    if !connection.egress().may_reach(&plan, name, address, Some(port)) {
        return Some(unreachable());
    }
    (spliced && policy::must_read_at(&plan, name, Some(address), port))
        .then(|| DialError::Refused(policy::refusal("requests to this address are judged, but cannot be read")))
}

fn unreachable() -> DialError {
    DialError::Refused(policy::refusal("the address of the host is not open to sandboxes"))
}

async fn connect(addresses: &[IpAddr], port: u16, within: Duration) -> Result<Dialled, DialError> {
    let end = Instant::now() + within;
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    let count = addresses.len().min(ATTEMPTS_MAX);
    for (number, address) in addresses.iter().take(count).enumerate() {
        let address = SocketAddr::new(*address, port);
        let left = end.saturating_duration_since(Instant::now());
        let patience = if number + 1 == count { left } else { left.min(ATTEMPT_TIMEOUT) };
        match timeout(patience, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                return Ok(Dialled { stream, address: Some(address) });
            }
            Ok(Err(fault)) => last = fault,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(DialError::Failed(last))
}

async fn within<T>(time: Duration, work: impl std::future::Future<Output = io::Result<T>>) -> Result<T, DialError> {
    match timeout(time, work).await {
        Ok(done) => done.map_err(DialError::Failed),
        Err(_) => Err(DialError::Failed(io::ErrorKind::TimedOut.into())),
    }
}
