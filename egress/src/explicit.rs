//! The proxy that sandboxes may name in `HTTPS_PROXY`: `CONNECT host:port`, then the tunnel is judged as any connection; other requests go to the
//! HTTP half.

use crate::accept::{route, until_cut, Undecided};
use crate::limits::{HEAD_BYTES_MAX, SILENCE};
use crate::model::{Decision, Entry, Protocol};
use crate::name::{self, Host};
use crate::policy::{self, Target, Verdict};
use crate::prefixed::Prefixed;
use crate::refuse;
use crate::splice::elapsed;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout_at;

const CONNECT: &[u8] = b"CONNECT ";
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

enum Begun {
    Connect {
        target: String,
        head_bytes: usize,
    },
    Other,
    /// The head is too long, or not one.
    Broken,
}

pub(crate) async fn serve(mut undecided: Undecided) {
    undecided.connection.set_destination(None, undecided.connection.port());
    let Undecided { connection, stream, buffer, end, .. } = &mut undecided;
    let begun = tokio::select! {
        begun = timeout_at(*end, read_head(stream, buffer)) => begun,
        () = connection.cut() => return refuse::reset(undecided.stream),
    };
    match begun {
        Ok(Ok(Begun::Connect { target, head_bytes })) => {
            undecided.buffer.drain(..head_bytes);
            connect(undecided, &target).await;
        }
        Ok(Ok(Begun::Other)) => {
            let Undecided { connection, stream, buffer, permit, .. } = undecided;
            drop(permit);
            let served = crate::http::serve_plain(connection.clone(), None, Prefixed::new(buffer, stream), true);
            until_cut(&connection, Box::pin(served)).await;
        }
        Ok(Ok(Begun::Broken)) => refuse::say(undecided.stream, BAD_REQUEST).await,
        Ok(Err(_)) => {}
        Err(_) => refuse::reset(undecided.stream),
    }
}

async fn read_head(stream: &mut tokio::net::TcpStream, buffer: &mut Vec<u8>) -> io::Result<Begun> {
    loop {
        let seen = buffer.len().min(CONNECT.len());
        if buffer[..seen] != CONNECT[..seen] {
            // TLS to the proxy itself is not offered.
            return Ok(if buffer[0].is_ascii_alphabetic() { Begun::Other } else { Begun::Broken });
        }
        if let Some(at) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            return Ok(match connect_target(&buffer[..at]) {
                Some(target) => Begun::Connect { target, head_bytes: at + 4 },
                None => Begun::Broken,
            });
        }
        if buffer.len() >= HEAD_BYTES_MAX {
            return Ok(Begun::Broken);
        }
        let mut rest = stream.take((HEAD_BYTES_MAX - buffer.len()) as u64);
        if rest.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The target of `CONNECT host:port HTTP/1.1`.
fn connect_target(head: &[u8]) -> Option<String> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).ok()?;
    let (target, version) = line.strip_prefix("CONNECT ")?.split_once(' ')?;
    (!target.is_empty() && matches!(version, "HTTP/1.1" | "HTTP/1.0")).then(|| target.to_owned())
}

fn split_target(target: &str) -> Option<(Host, u16)> {
    let (host, port) = target.rsplit_once(':')?;
    // A bare IPv6 address would be read in two ways.
    if host.contains(':') && !host.starts_with('[') {
        return None;
    }
    let valid = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port| valid && *port != 0)?;
    Some((Host::parse(host)?, port))
}

async fn connect(mut undecided: Undecided, target: &str) {
    let Some((host, port)) = split_target(target) else { return refuse::say(undecided.stream, BAD_REQUEST).await };
    let (connection, plan) = (undecided.connection.clone(), undecided.connection.plan());
    let egress = connection.egress();
    let (told, address) = match host {
        Host::Name(name) => (Some(name), None),
        Host::Address(address) => (None, Some(address)),
    };
    let asked = Target { host: told.as_deref(), address, port, request: None };
    let mut verdict = match address {
        // A name may follow, as that of TLS.
        Some(address) if !egress.may_reach(&plan, None, address, Some(port)) => {
            policy::refusal("the address is not open to sandboxes")
        }
        Some(_) if policy::some_name_passes(&plan, port) => Verdict::Allow { rule: None },
        _ => policy::decide(&plan, &asked),
    };
    if told.as_deref().is_some_and(name::is_local) {
        verdict = policy::refusal("the name means the sandbox itself");
    }
    connection.set_destination(address, port);
    if let Verdict::Deny { rule, reason } = &verdict {
        connection.report(Entry {
            host: told,
            address,
            method: Some("CONNECT".into()),
            status: Some(403),
            rule: rule.clone(),
            reason: Some(reason.clone()),
            ms: elapsed(&connection),
            ..Entry::new(Decision::Denied, Protocol::Http, port)
        });
        let response = crate::http::refusal(target, &verdict);
        return refuse::say(undecided.stream, &response).await;
    }
    if undecided.stream.write_all(ESTABLISHED).await.is_err() {
        return;
    }
    undecided.told = told;
    route(undecided, Some(SILENCE)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_and_a_port() {
        let name = |text: &str| Host::Name(text.to_owned());
        assert_eq!(split_target("Example.com:443"), Some((name("example.com"), 443)));
        assert_eq!(split_target("10.0.0.1:80"), Some((Host::Address("10.0.0.1".parse().unwrap()), 80)));
        assert_eq!(split_target("[::1]:80"), Some((Host::Address("::1".parse().unwrap()), 80)));
        for bad in
            ["example.com", "a:0", "a:65536", "a:+80", "a:", ":80", "::1:80", "a b:80", "http://a:80", "0x7f.1:80"]
        {
            assert_eq!(split_target(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_head_has_one_request_line() {
        assert_eq!(connect_target(b"CONNECT a:1 HTTP/1.1\r\nHost: b").as_deref(), Some("a:1"));
        for bad in [
            &b"CONNECT a:1"[..],
            b"CONNECT a:1 HTTP/2",
            b"CONNECT a:1  HTTP/1.1",
            b"CONNECT  HTTP/1.1",
            b"CONNECT \xff HTTP/1.1",
        ] {
            assert_eq!(connect_target(bad), None);
        }
    }
}
