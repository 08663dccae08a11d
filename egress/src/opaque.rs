//! Protocols that tell no name. The name is what the sandbox resolved to the address, or what it told the proxy.

use crate::accept::{serve_kind, Undecided};
use crate::connection::Held;
use crate::dial::{self, DialError, Dialled};
use crate::dns;
use crate::model::{Decision, Entry, Protocol};
use crate::policy::{self, Verdict};
use crate::refuse;
use crate::sniff::{sniff, Kind, Sniffed};
use crate::splice::{self, elapsed, report_undialled, Way};
use crate::tunnel::{relay, Counts, End};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Names whose answers have ended and that are asked again for one connection.
const STALE_MAX: usize = 8;

/// Names of where a connection goes.
pub(crate) async fn names(undecided: &Undecided) -> Vec<String> {
    if let Some(told) = &undecided.told {
        return vec![told.clone()];
    }
    let connection = &undecided.connection;
    let Some(IpAddr::V4(address)) = connection.address() else { return Vec::new() };
    let sandbox = connection.sandbox();
    let (mut valid, stale) = sandbox.pins().names(address, Instant::now());
    if valid.is_empty() {
        // Programs keep an address longer than its answer. It counts if the name still has it.
        for name in stale.into_iter().take(STALE_MAX) {
            let Ok(answer) = dns::resolve(connection.egress(), sandbox, &name).await else { continue };
            if answer.addresses.contains(&address) {
                let now = Instant::now();
                sandbox.pins().add(&name, &answer.addresses, answer.ttl(now), now);
                valid.push(name);
            }
        }
    }
    valid
}

pub(crate) async fn serve(undecided: Undecided) {
    let names = names(&undecided).await;
    let Some((verdict, dialled)) = decide_and_dial(&undecided, &names).await else {
        return refuse::reset(undecided.stream);
    };
    let Undecided { connection, stream, buffer, permit, .. } = undecided;
    drop(permit);
    let way = way_of(&connection.plan(), &names, &dialled, connection.port(), verdict);
    connection.hold(held(&names, &dialled, connection.port()));
    splice::tunnel(&connection, stream, dialled.stream, buffer, way).await;
}

/// For a client that says nothing: where the plan lets it pass without a name, the server is heard, and what the client says then is looked at
/// before it is sent. A client that is not let pass by that comes back, to be waited for.
pub(crate) async fn pass_silent(mut undecided: Undecided) -> Option<Undecided> {
    let names = names(&undecided).await;
    let connection = undecided.connection.clone();
    if policy::decide_opaque(&connection.plan(), &names, connection.address(), connection.port()).is_denied() {
        return Some(undecided);
    }
    let Some((verdict, dialled)) = decide_and_dial(&undecided, &names).await else {
        refuse::reset(undecided.stream);
        return None;
    };
    let way = way_of(&connection.plan(), &names, &dialled, connection.port(), verdict);
    connection.hold(held(&names, &dialled, connection.port()));
    // What it will say is looked at when it says it.
    undecided.permit = None;
    let counts = Counts::default();
    let idle = Duration::from_millis(connection.egress().limits.tunnel_idle_ms);
    let mut heard: Option<Kind> = None;
    let Undecided { stream, buffer, .. } = &mut undecided;
    let first = async {
        // An idle client costs little; what it begins must be clear in time.
        stream.readable().await.map_err(|_| Unheard)?;
        let end = tokio::time::Instant::now() + Duration::from_millis(connection.egress().limits.sniff_timeout_ms);
        match sniff(stream, buffer, None, end).await {
            Ok(Sniffed::Kind(Kind::Opaque)) => Ok(std::mem::take(buffer)),
            Ok(Sniffed::Closed) if buffer.is_empty() => Ok(Vec::new()),
            Ok(Sniffed::Kind(kind)) => {
                heard = Some(kind);
                Err(Unheard)
            }
            _ => Err(Unheard),
        }
    };
    let end = relay(stream, &dialled.stream, &connection.egress().pipes, &counts, idle, connection.cut(), first).await;
    if let (End::Withheld(Unheard), Some(kind), 0) = (&end, heard, counts.received()) {
        // A slow client of a protocol that does tell a name: from the beginning.
        drop(dialled.stream);
        connection.release();
        serve_kind(undecided, kind).await;
        return None;
    }
    splice::finish(&connection, undecided.stream, dialled.stream, &counts, &way, &end);
    None
}

/// What the client said is not what the server was dialled for.
#[derive(Debug)]
struct Unheard;

async fn decide_and_dial(undecided: &Undecided, names: &[String]) -> Option<(Verdict, Dialled)> {
    let connection = &undecided.connection;
    let (address, port) = (connection.address(), connection.port());
    let verdict = policy::decide_opaque(&connection.plan(), names, address, port);
    if let Verdict::Deny { rule, reason } = &verdict {
        report(undecided, names, rule.clone(), reason.clone());
        return None;
    }
    let dialled = match (address, &undecided.told) {
        (Some(address), _) => dial::dial_address(connection, SocketAddr::new(address, port), names).await,
        (None, Some(told)) => dial::dial_host(connection, told, port, false).await,
        (None, None) => Err(DialError::Refused(policy::refusal("no host was told"))),
    };
    match dialled {
        Ok(dialled) => Some((verdict, dialled)),
        Err(fault) => {
            report_undialled(connection, Protocol::Tcp, names.first().cloned(), &fault);
            None
        }
    }
}

/// Resets what is not let pass.
pub(crate) fn refuse(undecided: Undecided, names: &[String]) {
    let connection = &undecided.connection;
    let verdict = policy::decide_opaque(&connection.plan(), names, connection.address(), connection.port());
    if let Verdict::Deny { rule, reason } = verdict {
        report(&undecided, names, rule, reason);
    }
    refuse::reset(undecided.stream);
}

fn report(undecided: &Undecided, names: &[String], rule: Option<String>, reason: String) {
    let connection = &undecided.connection;
    connection.report(Entry {
        host: names.first().cloned(),
        address: connection.address(),
        rule,
        reason: Some(reason),
        ms: elapsed(connection),
        ..Entry::new(Decision::Denied, Protocol::Tcp, connection.port())
    });
}

fn held(names: &[String], dialled: &Dialled, port: u16) -> Held {
    Held::Opaque { names: names.to_vec(), address: dialled.address.map(|at| at.ip()), port }
}

/// The entry names the host that the plan lets pass, if there is one.
fn way_of(
    plan: &crate::compiled::CompiledPlan,
    names: &[String],
    dialled: &Dialled,
    port: u16,
    verdict: Verdict,
) -> Way {
    let passes = |name: &&String| !policy::decide_opaque(plan, std::slice::from_ref(*name), None, port).is_denied();
    let host = names.iter().find(passes).or(names.first()).cloned();
    Way { protocol: Protocol::Tcp, host, address: dialled.address.map(|at| at.ip()), verdict }
}
