//! One request: decided by itself, given its secrets, sent on; its response masked and passed back.

use super::answer;
use super::body::{self, Body, Metered, Way};
use super::headers;
use super::pool::{Fault, Lease, Sender};
use super::record::Record;
use super::target::{self, Authority};
use super::upgrade::{self, Judged};
use super::{response, secrets, Session};
use crate::compiled::CompiledPlan;
use crate::model::{Decision, Protocol};
use crate::policy::{self, Target, Verdict};
use crate::search::Matcher;
use http::header::{HeaderValue, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use std::io::Error;
use std::sync::Arc;

/// An answer that ends the work on a request early.
pub(super) type Stop = Box<Response<Body>>;

/// Answers one request. An error ends the connection.
pub async fn respond(session: Arc<Session>, request: Request<Incoming>) -> Result<Response<Body>, Error> {
    let protocol = match (session.tls, session.h2) {
        (true, true) => Protocol::H2,
        (true, false) => Protocol::Https,
        (false, _) => Protocol::Http,
    };
    let record = Record::new(session.connection.clone(), session.activity.clone(), protocol);
    let path = request.uri().path_and_query().map_or("", PathAndQuery::as_str);
    record.request(request.method().as_str(), path.split('?').next().unwrap_or_default());
    record.add_sent(headers::bytes_of(request.headers()) + (path.len() + request.method().as_str().len() + 14) as u64);
    let raw_after = request.version() == Version::HTTP_11 && headers::asks_upgrade(request.headers());
    let response = match handle(&session, &record, request).await {
        Ok(response) => response,
        Err(stop) => (*stop).map(|body| Metered::new(body, record.clone(), Way::Received, None).boxed_unsync()),
    };
    // What comes after the head of an upgrade is not checked, so it must not be read as HTTP.
    let response = if raw_after && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        answer::closing(response, session.h2)
    } else {
        response
    };
    record.status(response.status().as_u16());
    record.add_received(headers::bytes_of(response.headers()) + 20);
    Ok(response)
}

/// What a request needs on its way.
pub(super) struct Routed {
    pub named: Authority,
    port: u16,
    upgrade: Option<(HeaderValue, OnUpgrade)>,
    judged: Judged,
}

async fn handle(
    session: &Arc<Session>,
    record: &Arc<Record>,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Stop> {
    let on_upgrade = hyper::upgrade::on(&mut request);
    let (mut head, incoming) = request.into_parts();
    let plan = session.connection.plan();
    let routed = route(session, record, &plan, &head, on_upgrade)?;
    let body = Metered::new(incoming, record.clone(), Way::Sent, None).boxed_unsync();
    let (sender, lease) = session
        .pool
        .sender(&routed.named.host, routed.port)
        .await
        .map_err(|fault| unreachable(record, &routed, fault))?;
    lease.address().into_iter().for_each(|address| record.address(address));
    clean(&mut head, &routed, session.tls);
    let (body, matcher) = if session.tls {
        secrets::put_in(session, record, &plan, &routed, &mut head, body).await?
    } else {
        (body, None)
    };
    let is_head = head.method == Method::HEAD;
    let open = session.open(routed.judged.clone());
    let (response, sender, lease) = send(session, record, &routed, head, body, sender, lease).await?;
    let response = match routed.upgrade {
        Some((asked, client)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            return go_over(session, record, response, asked, client, routed.judged, matcher);
        }
        _ if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            return Err(failed(record, "the host switched to a protocol that nobody asked for"));
        }
        _ => response::answered(record, response, is_head, matcher)?,
    };
    let end = Box::new(move || {
        drop(open);
        if let Sender::H1 { sender, permit } = sender {
            lease.give_back(sender, permit);
        }
    });
    Ok(response.map(|body| Metered::new(body, record.clone(), Way::Received, Some(end)).boxed_unsync()))
}

/// Where a request goes, if it may.
fn route(
    session: &Session,
    record: &Arc<Record>,
    plan: &CompiledPlan,
    head: &Parts,
    on_upgrade: OnUpgrade,
) -> Result<Routed, Stop> {
    if matches!(head.method, Method::CONNECT | Method::TRACE) {
        let reason = "this method is not taken here";
        record.refuse(405, reason);
        let response = answer::refused(StatusCode::METHOD_NOT_ALLOWED, reason);
        return Err(Box::new(if head.method == Method::CONNECT {
            answer::closing(response, session.h2)
        } else {
            response
        }));
    }
    let (named, port) =
        target::of_request(head, &session.naming, session.connection.port()).map_err(|(status, reason)| {
            record.refuse(status.as_u16(), reason);
            Box::new(answer::refused(status, reason))
        })?;
    record.host(&named.host, port);
    let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
    let judged = Judged { host: named.host.clone(), port, method: head.method.as_str().to_owned(), path };
    match session.judge(plan, &judged) {
        Verdict::Allow { rule } => record.rule(Decision::Allowed, rule.as_deref()),
        Verdict::WouldDeny { rule, .. } => record.rule(Decision::WouldDeny, rule.as_deref()),
        verdict @ Verdict::Deny { .. } => return Err(denied(record, &named.host, &verdict)),
    }
    let upgrade =
        headers::upgrade_of(&head.headers).filter(|_| head.version == Version::HTTP_11).map(|name| (name, on_upgrade));
    if upgrade.is_some() {
        record.protocol(Protocol::Ws);
    }
    Ok(Routed { named, port, upgrade, judged })
}

fn denied(record: &Record, host: &str, verdict: &Verdict) -> Stop {
    record.rule(Decision::Denied, verdict.rule());
    if let Verdict::Deny { reason, .. } = verdict {
        record.refuse(403, reason);
    }
    Box::new(answer::denied(host, verdict))
}

pub(super) fn failed(record: &Record, reason: &str) -> Stop {
    record.fail(Some(502), reason);
    Box::new(answer::failed(StatusCode::BAD_GATEWAY, reason))
}

fn unreachable(record: &Record, routed: &Routed, fault: Fault) -> Stop {
    match &fault {
        Fault::Dial(error) if error.is_refusal() => {
            let verdict = Verdict::Deny { rule: error.rule().map(str::to_owned), reason: error.to_string() };
            denied(record, &routed.named.host, &verdict)
        }
        _ => failed(record, &format!("{} cannot be reached: {fault}", routed.named.host)),
    }
}

/// Leaves what is of the message, and names the host anew.
fn clean(head: &mut Parts, routed: &Routed, tls: bool) {
    headers::strip(&mut head.headers);
    // The answer to it was given here, when the body was first asked for.
    head.headers.remove(EXPECT);
    let length = head.headers.get(CONTENT_LENGTH).cloned();
    length.map(|length| head.headers.insert(CONTENT_LENGTH, length));
    let written = routed.named.written(routed.port, if tls { 443 } else { 80 });
    if let Ok(written) = HeaderValue::try_from(written) {
        head.headers.insert(HOST, written);
    }
    let path = head.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    head.uri = Uri::from(path);
    if let Some((name, _)) = &routed.upgrade {
        head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        head.headers.insert(UPGRADE, name.clone());
    }
}

/// Sends the request; over a new connection if the one that was open had ended before anything was sent.
async fn send(
    session: &Session,
    record: &Arc<Record>,
    routed: &Routed,
    head: Parts,
    body: Body,
    mut sender: Sender,
    mut lease: Lease,
) -> Result<(Response<Incoming>, Sender, Lease), Stop> {
    let mut request = Request::from_parts(head, body);
    let mut first = true;
    loop {
        address(&mut request, &sender, session.tls);
        let sent = match &mut sender {
            Sender::H1 { sender, .. } => sender.try_send_request(request).await,
            Sender::H2(sender) => sender.try_send_request(request).await,
        };
        match sent {
            Ok(response) => return Ok((response, sender, lease)),
            Err(mut error) => match error.take_message().filter(|_| first) {
                Some(unsent) => {
                    (request, first) = (unsent, false);
                    drop(sender);
                    (sender, lease) = session
                        .pool
                        .sender(&routed.named.host, routed.port)
                        .await
                        .map_err(|fault| unreachable(record, routed, fault))?;
                }
                None => {
                    let error = error.into_error();
                    return Err(failed(record, &format!("{} did not answer: {}", routed.named.host, causes(&error))));
                }
            },
        }
    }
}

/// The whole chain of an error, which never holds bytes of a message.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}

/// Writes the target as the protocol of the connection wants it.
fn address(request: &mut Request<Body>, sender: &Sender, tls: bool) {
    match sender {
        Sender::H1 { .. } => {
            *request.version_mut() = Version::HTTP_11;
            let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
            *request.uri_mut() = Uri::from(path);
            join_cookies(request.headers_mut());
            if !request.body().is_end_stream() && request.body().size_hint().exact().is_none() {
                request.headers_mut().remove(CONTENT_LENGTH);
                request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
        }
        Sender::H2(_) => {
            *request.version_mut() = Version::HTTP_2;
            let host = request.headers_mut().remove(HOST);
            let mut parts = std::mem::take(request.uri_mut()).into_parts();
            if let Some(host) = host {
                parts.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
                parts.authority = host.as_bytes().try_into().ok();
            }
            *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        }
    }
}

/// Clients of HTTP/2 may send cookies in several fields, which HTTP/1.1 does not know (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1 {
        let joined = HeaderValue::from_bytes(&cookies.join(&b"; "[..]));
        joined.map(|joined| headers.insert(COOKIE, joined)).ok();
    }
}

/// Answers 101 and copies from then on.
fn go_over(
    session: &Arc<Session>,
    record: &Arc<Record>,
    mut response: Response<Incoming>,
    asked: HeaderValue,
    client: OnUpgrade,
    judged: Judged,
    matcher: Option<Arc<Matcher>>,
) -> Result<Response<Body>, Stop> {
    let host = hyper::upgrade::on(&mut response);
    let mut head = response.into_parts().0;
    let name = head.headers.get(UPGRADE).cloned().unwrap_or(asked);
    headers::strip_response(&mut head.headers);
    if let Some(matcher) = matcher {
        body::mask_headers(&mut head.headers, &matcher);
    }
    head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers.insert(UPGRADE, name);
    upgrade::copy(session.clone(), record.clone(), client, host, judged);
    Ok(Response::from_parts(head, body::empty()))
}

impl Session {
    /// Decides about a request under a plan.
    pub(super) fn judge(&self, plan: &CompiledPlan, judged: &Judged) -> Verdict {
        let target = Target {
            host: Some(&judged.host),
            address: self.address(),
            port: judged.port,
            request: Some((&judged.method, &judged.path)),
        };
        policy::decide(plan, &target)
    }
}
