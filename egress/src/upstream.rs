//! The operator's proxy: HTTP CONNECT (RFC 9110 § 9.3.6) or SOCKS5 (RFC 1928, RFC 1929). It is told names, so that its own rules see them.

use crate::egress::Egress;
use crate::name::Host;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

const HEAD_BYTES_MAX: usize = 16 * 1024;
const CREDENTIAL_BYTES_MAX: usize = 255;

pub struct Upstream {
    scheme: Scheme,
    host: Host,
    port: u16,
    credentials: Option<(Zeroizing<String>, Zeroizing<String>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Socks5,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    Name(String, u16),
    Address(SocketAddr),
}

impl Upstream {
    /// `http://user:password@host:port` or `socks5://…`, the user and the password percent-encoded. Messages hold no part of the text.
    pub fn parse(url: &str) -> Result<Upstream, String> {
        let (scheme, rest) =
            match (url.strip_prefix("http://"), url.strip_prefix("socks5://"), url.strip_prefix("socks5h://")) {
                (Some(rest), ..) => (Scheme::Http, rest),
                (_, Some(rest), _) | (_, _, Some(rest)) => (Scheme::Socks5, rest),
                _ => return Err("upstream must begin with http:// or socks5://".into()),
            };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (userinfo, place) = match authority.rsplit_once('@') {
            Some((userinfo, place)) => (Some(userinfo), place),
            None => (None, authority),
        };
        let (host, port) = place.rsplit_once(':').ok_or("upstream must name a port")?;
        let host = Host::parse(host).ok_or("upstream has no valid host")?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or("upstream has no valid port")?;
        let credentials = match userinfo {
            None => None,
            Some(userinfo) => {
                let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
                let (user, password) = (decode(user), decode(password));
                Some(user.zip(password).ok_or("upstream has credentials that are not valid")?)
            }
        };
        Ok(Upstream { scheme, host, port, credentials })
    }

    /// A stream on which what follows is the destination's.
    pub async fn connect(&self, egress: &Arc<Egress>, destination: &Destination) -> io::Result<TcpStream> {
        let addresses: Vec<IpAddr> = match &self.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                let answer = match egress.resolver.known(name, std::time::Instant::now()) {
                    Some(answer) => answer,
                    None => egress.resolver.ask(name).await.map_err(|fault| io::Error::other(fault.to_string()))?,
                };
                answer.addresses.iter().map(|address| IpAddr::V4(*address)).collect()
            }
        };
        let places: Vec<SocketAddr> =
            addresses.into_iter().map(|address| SocketAddr::new(address, self.port)).collect();
        let mut stream = TcpStream::connect(&places[..]).await?;
        let _ = stream.set_nodelay(true);
        match self.scheme {
            Scheme::Http => self.connect_http(&mut stream, destination).await?,
            Scheme::Socks5 => self.connect_socks(&mut stream, destination).await?,
        }
        Ok(stream)
    }

    async fn connect_http(&self, stream: &mut TcpStream, destination: &Destination) -> io::Result<()> {
        let place = match destination {
            Destination::Name(host, port) => format!("{host}:{port}"),
            Destination::Address(address) => address.to_string(),
        };
        let mut head = Zeroizing::new(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n"));
        if let Some((user, password)) = &self.credentials {
            let both = Zeroizing::new(format!("{}:{}", user.as_str(), password.as_str()));
            head.push_str("Proxy-Authorization: Basic ");
            push_base64(&mut head, both.as_bytes());
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await?;
        let status = read_head(stream).await?;
        match status {
            200..=299 => Ok(()),
            _ => Err(io::Error::other(format!("the upstream proxy answered {status}"))),
        }
    }

    async fn connect_socks(&self, stream: &mut TcpStream, destination: &Destination) -> io::Result<()> {
        let failed = |what: &str| io::Error::other(format!("the upstream proxy {what}"));
        let method: u8 = if self.credentials.is_some() { 2 } else { 0 };
        stream.write_all(&[5, 1, method]).await?;
        let mut chosen = [0; 2];
        stream.read_exact(&mut chosen).await?;
        if chosen != [5, method] {
            return Err(failed("takes no such credentials"));
        }
        if let Some((user, password)) = &self.credentials {
            let mut login = Zeroizing::new(vec![1, user.len() as u8]);
            login.extend_from_slice(user.as_bytes());
            login.push(password.len() as u8);
            login.extend_from_slice(password.as_bytes());
            stream.write_all(&login).await?;
            let mut answer = [0; 2];
            stream.read_exact(&mut answer).await?;
            if answer[1] != 0 {
                return Err(failed("refuses the credentials"));
            }
        }
        let mut request = vec![5, 1, 0];
        let port = match destination {
            Destination::Name(host, port) => {
                request.extend_from_slice(&[3, host.len() as u8]);
                request.extend_from_slice(host.as_bytes());
                *port
            }
            Destination::Address(SocketAddr::V4(address)) => {
                request.push(1);
                request.extend_from_slice(&address.ip().octets());
                address.port()
            }
            Destination::Address(SocketAddr::V6(address)) => {
                request.push(4);
                request.extend_from_slice(&address.ip().octets());
                address.port()
            }
        };
        request.extend_from_slice(&port.to_be_bytes());
        stream.write_all(&request).await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        if answer[..2] != [5, 0] {
            return Err(failed(&format!("answered {}", answer[1])));
        }
        let length = match answer[3] {
            1 => 4,
            4 => 16,
            3 => stream.read_u8().await?.into(),
            _ => return Err(failed("answered with an address of no known type")),
        };
        stream.read_exact(&mut vec![0; length + 2]).await?;
        Ok(())
    }
}

/// Reads the head of a response and not a byte more; gives its status.
async fn read_head(stream: &mut TcpStream) -> io::Result<u16> {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let seen = stream.peek(&mut chunk).await?;
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let before = head.len();
        head.extend_from_slice(&chunk[..seen]);
        let from = before.saturating_sub(3);
        let end = memchr::memmem::find(&head[from..], b"\r\n\r\n").map(|at| from + at + 4);
        let taken = end.unwrap_or(head.len()) - before;
        stream.read_exact(&mut chunk[..taken]).await?;
        if end.is_some() {
            break;
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(io::Error::other("the head of the upstream proxy's answer is too long"));
        }
    }
    let status =
        head.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|text| std::str::from_utf8(text).ok());
    status.and_then(|text| text.parse().ok()).ok_or_else(|| io::Error::other("the upstream proxy does not speak HTTP"))
}

fn decode(text: &str) -> Option<Zeroizing<String>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                ((digit(high)? << 4 | digit(low)?) as u8, after)
            }
            (b'%', _) => return None,
            _ => (*first, after),
        };
        bytes.push(byte);
        rest = after;
    }
    let fits = bytes.len() <= CREDENTIAL_BYTES_MAX;
    std::str::from_utf8(&bytes).ok().filter(|_| fits).map(|text| Zeroizing::new(text.to_owned()))
}

fn push_base64(to: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) as usize & 63;
            to.push(if digit <= group.len() { DIGITS[value].into() } else { '=' });
        }
    }
}

/// A name in the form of a rule, for tests of the parser.
#[cfg(test)]
fn host_text(upstream: &Upstream) -> String {
    match &upstream.host {
        Host::Name(name) => name.clone(),
        Host::Address(address) => address.to_string(),
    }
}

#[cfg(test)]
#[path = "upstream_test.rs"]
mod tests;
