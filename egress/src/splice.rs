//! TLS: refused by an alert, ended here where requests must be read, else handed on without a look inside.

use crate::accept::{until_cut, Undecided};
use crate::connection::{Connection, Held};
use crate::dial::{self, DialError};
use crate::hello::{Hello, ServerName};
use crate::model::{Decision, Entry, Protocol};
use crate::policy::{self, Target, Verdict};
use crate::prefixed::Prefixed;
use crate::refuse;
use crate::tunnel::{relay, Counts, End};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

pub(crate) async fn serve_tls(undecided: Undecided, hello: Hello) {
    let (connection, plan) = (undecided.connection.clone(), undecided.connection.plan());
    let (address, port) = (connection.address(), connection.port());
    let told = undecided.told.clone();
    let all_pass = policy::lets_all_pass(&plan);
    let host = match hello.name {
        ServerName::Absent => told,
        ServerName::Invalid if plan.looks_at_names => {
            return deny(undecided, told, policy::refusal("the server name of TLS is not the name of a host")).await
        }
        ServerName::Invalid => told,
        ServerName::Name(name) if told.as_ref().is_some_and(|told| *told != name) && !all_pass => {
            return deny(
                undecided,
                Some(name),
                policy::refusal("the server name of TLS is not the one told to the proxy"),
            )
            .await
        }
        ServerName::Name(name) => Some(name),
    };
    let target = Target { host: host.as_deref(), address, port, request: None };
    let verdict = match (&host, policy::decide(&plan, &target)) {
        (None, verdict) if !verdict.is_denied() => nameless(&connection, verdict).await,
        (_, verdict) => verdict,
    };
    if verdict.is_denied() {
        return deny(undecided, host, verdict).await;
    }
    if let Some(host) = &host {
        let mut read = policy::must_read_at(&plan, Some(host), address, port);
        if !read && plan.reads_by_address {
            let addresses = dial::addresses_of(&connection, host).await.unwrap_or_default();
            read = addresses.iter().any(|at| policy::must_read_at(&plan, Some(host), Some(IpAddr::V4(*at)), port));
        }
        if read {
            let Undecided { stream, buffer, permit, .. } = undecided;
            drop(permit);
            let served = crate::http::serve_tls(connection.clone(), host.clone(), Prefixed::new(buffer, stream));
            return until_cut(&connection, Box::pin(served)).await;
        }
    }
    splice(undecided, host, verdict).await;
}

/// TLS without a name goes to the address that the sandbox chose. It must not get around a rule about a host that the sandbox resolved to it.
async fn nameless(connection: &Connection, verdict: Verdict) -> Verdict {
    let (plan, port, address) = (connection.plan(), connection.port(), connection.address());
    if policy::must_read_at(&plan, None, address, port) {
        return policy::refusal("requests to this address are judged, and TLS told no name");
    }
    let names = match address {
        Some(IpAddr::V4(address)) => connection.sandbox().pins().names(address, Instant::now()).0,
        _ => Vec::new(),
    };
    for name in &names {
        let target = Target { host: Some(name), address, port, request: None };
        let named = policy::decide(&plan, &target);
        if named.is_denied() && named.rule().is_some() {
            return named;
        }
        if policy::must_read_at(&plan, Some(name), address, port) {
            return policy::refusal("requests to this host are read, and TLS told no name");
        }
    }
    verdict
}

async fn deny(undecided: Undecided, host: Option<String>, verdict: Verdict) {
    let Undecided { connection, stream, .. } = undecided;
    let reason = match &verdict {
        Verdict::Deny { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    connection.report(Entry {
        host,
        address: connection.address(),
        rule: verdict.rule().map(str::to_owned),
        reason,
        ms: elapsed(&connection),
        ..Entry::new(Decision::Denied, Protocol::Tls, connection.port())
    });
    refuse::alert_denied(stream).await;
}

async fn splice(undecided: Undecided, host: Option<String>, verdict: Verdict) {
    let Undecided { connection, stream, buffer, permit, .. } = undecided;
    let (address, port) = (connection.address(), connection.port());
    let dialled = match (&host, address) {
        (Some(host), _) => dial::dial_host(&connection, host, port, true).await,
        (None, Some(address)) => dial::dial_address(&connection, SocketAddr::new(address, port), &[]).await,
        (None, None) => Err(DialError::Refused(policy::refusal("no host was told"))),
    };
    let dialled = match dialled {
        Ok(dialled) => dialled,
        Err(fault) => {
            report_undialled(&connection, Protocol::Tls, host, &fault);
            return match fault.is_refusal() {
                true => refuse::alert_denied(stream).await,
                false => refuse::alert_failed(stream).await,
            };
        }
    };
    drop(permit);
    let at = dialled.address.map(|at| at.ip());
    connection.hold(Held::Spliced { host: host.clone(), address: at, port });
    let way = Way { protocol: Protocol::Tls, host, address: at, verdict };
    tunnel(&connection, stream, dialled.stream, buffer, way).await;
}

/// What the entry of a tunnel says.
pub(crate) struct Way {
    pub protocol: Protocol,
    pub host: Option<String>,
    pub address: Option<IpAddr>,
    pub verdict: Verdict,
}

/// Copies until an end, and reports. `buffer` was read of the client already.
pub(crate) async fn tunnel(connection: &Connection, client: TcpStream, server: TcpStream, buffer: Vec<u8>, way: Way) {
    let (egress, counts) = (connection.egress(), Counts::default());
    let idle = Duration::from_millis(egress.limits.tunnel_idle_ms);
    let first = async { Ok::<_, Infallible>(buffer) };
    let end = relay(&client, &server, &egress.pipes, &counts, idle, connection.cut(), first).await;
    finish(connection, client, server, &counts, &way, &end);
}

pub(crate) fn finish<E>(
    connection: &Connection,
    client: TcpStream,
    server: TcpStream,
    counts: &Counts,
    way: &Way,
    end: &End<E>,
) {
    let allowed = match &way.verdict {
        Verdict::WouldDeny { .. } => Decision::WouldDeny,
        _ => Decision::Allowed,
    };
    let (decision, reason) = match end {
        End::Closed => (allowed, None),
        End::Broken(fault) => (allowed, Some(fault.kind().to_string())),
        End::Idle => (allowed, Some("idle".to_owned())),
        End::Cut => (Decision::Denied, Some(connection.cut_reason().to_owned())),
        End::Withheld(_) => (Decision::Denied, Some("refused after the server had spoken".to_owned())),
    };
    let entry = entry_of(connection, decision, way);
    connection.report(Entry { reason, sent: counts.sent(), received: counts.received(), ..entry });
    if !matches!(end, End::Closed) {
        refuse::reset(client);
        refuse::reset(server);
    }
}

fn entry_of(connection: &Connection, decision: Decision, way: &Way) -> Entry {
    Entry {
        host: way.host.clone(),
        address: way.address.or(connection.address()),
        rule: way.verdict.rule().map(str::to_owned),
        ms: elapsed(connection),
        ..Entry::new(decision, way.protocol, connection.port())
    }
}

pub(crate) fn report_undialled(connection: &Connection, protocol: Protocol, host: Option<String>, fault: &DialError) {
    let decision = if fault.is_refusal() { Decision::Denied } else { Decision::Failed };
    connection.report(Entry {
        host,
        address: connection.address(),
        rule: fault.rule().map(str::to_owned),
        reason: Some(fault.to_string()),
        ms: elapsed(connection),
        ..Entry::new(decision, protocol, connection.port())
    });
}

pub(crate) fn elapsed(connection: &Connection) -> u64 {
    connection.opened().elapsed().as_millis() as u64
}
