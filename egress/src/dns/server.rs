//! Answers the questions of sandboxes.

use super::message::{self, Malformed, Question};
use super::{resolve, Fault};
use crate::egress::Egress;
use crate::model::{Decision, Entry, Protocol};
use crate::name;
use crate::policy::{self, Verdict};
use crate::sandboxes::Sandbox;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

const QUESTION_BYTES_MAX: usize = 1024;
const TCP_CONNECTIONS_MAX: usize = 512;
const TCP_QUESTIONS_MAX: usize = 128;
const TCP_IDLE: Duration = Duration::from_secs(10);
const TCP_ANSWER_BYTES_MAX: usize = 65_535;
const PORT: u16 = 53;

/// Kinds that are about the connection or the server (RFC 6895 § 3.1), and transfers of whole zones.
const META_KINDS: std::ops::RangeInclusive<u16> = 128..=255;

pub async fn serve_udp(egress: Arc<Egress>, socket: UdpSocket) -> io::Result<()> {
    let socket = Arc::new(socket);
    let mut buffer = vec![0; QUESTION_BYTES_MAX + 1];
    loop {
        let (length, peer) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(_) => {
                tokio::task::yield_now().await;
                continue;
            }
        };
        let Some(sandbox) = egress.sandboxes.at(peer.ip()).filter(|_| length <= QUESTION_BYTES_MAX) else { continue };
        let Ok(permit) = sandbox.questions.clone().try_acquire_owned() else { continue };
        let (egress, socket, message) = (egress.clone(), socket.clone(), buffer[..length].to_vec());
        tokio::spawn(async move {
            if let Some(answer) = answer(&egress, &sandbox, &message, None).await {
                let _ = socket.send_to(&answer, peer).await;
            }
            drop(permit);
        });
    }
}

pub async fn serve_tcp(egress: Arc<Egress>, listener: TcpListener) -> io::Result<()> {
    let connections = Arc::new(Semaphore::new(TCP_CONNECTIONS_MAX));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(sandbox) = egress.sandboxes.at(peer.ip()) else { continue };
        let all = connections.clone().try_acquire_owned();
        let (Ok(all), Ok(own)) = (all, sandbox.questions.clone().try_acquire_owned()) else { continue };
        let egress = egress.clone();
        tokio::spawn(async move {
            let _ = serve_stream(&egress, &sandbox, stream).await;
            drop((all, own));
        });
    }
}

async fn serve_stream(egress: &Arc<Egress>, sandbox: &Arc<Sandbox>, mut stream: TcpStream) -> io::Result<()> {
    for _ in 0..TCP_QUESTIONS_MAX {
        let message = timeout(TCP_IDLE, async {
            let length = usize::from(stream.read_u16().await?);
            if length > QUESTION_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut message = vec![0; length];
            stream.read_exact(&mut message).await?;
            Ok::<_, io::Error>(message)
        })
        .await??;
        let Some(answer) = answer(egress, sandbox, &message, Some(TCP_ANSWER_BYTES_MAX)).await else { return Ok(()) };
        let mut framed = (answer.len() as u16).to_be_bytes().to_vec();
        framed.extend_from_slice(&answer);
        timeout(TCP_IDLE, stream.write_all(&framed)).await??;
    }
    Ok(())
}

/// The answer to a message of a sandbox, if one is due. Without `bytes_max` the question says how long it may be.
pub async fn answer(
    egress: &Arc<Egress>,
    sandbox: &Arc<Sandbox>,
    message: &[u8],
    bytes_max: Option<usize>,
) -> Option<Vec<u8>> {
    let question = match Question::parse(message) {
        Ok(question) => question,
        Err(Malformed(answer)) => return answer,
    };
    let bytes_max = bytes_max.unwrap_or(question.udp_bytes_max());
    if question.class != message::IN || META_KINDS.contains(&question.kind) || question.kind == message::OPT {
        return Some(question.refuse(message::REFUSED));
    }
    let Some(name) = question.name.clone().filter(|name| !name::is_local(name)) else {
        return Some(question.refuse(message::NO_SUCH_NAME));
    };
    if let Some(address) = egress.own_names.get(&name) {
        let addresses = if question.kind == message::A { vec![*address] } else { vec![] };
        return Some(question.addresses(&[], &addresses, OWN_TTL, bytes_max));
    }
    let plan = sandbox.plan();
    let entry = |decision: Decision, reason: Option<String>, rule: Option<String>| Entry {
        host: Some(name.clone()),
        rule,
        reason,
        ..Entry::new(decision, Protocol::Dns, PORT)
    };
    match policy::decide_name(&plan, &name) {
        Verdict::Deny { rule, reason } => {
            sandbox.report_name(&name, entry(Decision::Denied, Some(reason), rule), &egress.output);
            return Some(question.refuse(message::NO_SUCH_NAME));
        }
        Verdict::WouldDeny { rule, layer } => {
            let reason = Some(format!("not allowed by {layer}"));
            sandbox.report_name(&name, entry(Decision::WouldDeny, reason, rule), &egress.output);
        }
        Verdict::Allow { .. } => {}
    }
    let fault = match question.kind {
        message::A => match resolve(egress, sandbox, &name).await {
            Ok(answer) if !answer.exists => return Some(question.refuse(message::NO_SUCH_NAME)),
            Ok(answer) => {
                let mut addresses = answer.addresses.clone();
                // The plan may have changed while the resolver was asked.
                let plan = sandbox.plan();
                addresses.retain(|address| egress.may_reach(&plan, Some(&name), IpAddr::V4(*address), None));
                let now = Instant::now();
                let ttl = answer.ttl(now);
                sandbox.pins().add(&name, &addresses, ttl, now);
                let seconds = u32::try_from(ttl.as_secs()).unwrap_or(0).max(1);
                return Some(question.addresses(&answer.chain, &addresses, seconds, bytes_max));
            }
            Err(fault) => fault,
        },
        message::AAAA | message::HTTPS | message::SVCB => return Some(question.addresses(&[], &[], 0, bytes_max)),
        _ if !policy::lets_all_names_pass(&plan) => return Some(question.addresses(&[], &[], 0, bytes_max)),
        _ if !sandbox.may_ask() => Fault::TooMany,
        kind => match egress.resolver.forward(&name, kind).await {
            Ok(answer) => return Some(question.forwarded(answer, bytes_max)),
            Err(fault) => fault,
        },
    };
    if fault == Fault::TooMany {
        let reason = Some(fault.to_string());
        sandbox.report_name("", entry(Decision::Denied, reason, None), &egress.output);
        return Some(question.refuse(message::REFUSED));
    }
    Some(question.refuse(message::SERVER_FAILURE))
}

const OWN_TTL: u32 = 60;
