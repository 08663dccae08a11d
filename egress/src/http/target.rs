//! Which host a request is for.

use crate::name::Host;
use http::header::HOST;
use http::{request::Parts, StatusCode};
use std::net::IpAddr;

/// A host as it is decided about, and as it is written to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// Normalised; an address without brackets.
    pub host: String,
    pub address: Option<IpAddr>,
    pub port: Option<u16>,
}

impl Authority {
    pub fn parse(text: &str) -> Option<Authority> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') && (!host.contains(':') || host.ends_with(']')) => {
                let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
                (host, Some(if digits { port.parse().ok().filter(|&port| port > 0)? } else { return None }))
            }
            _ => (text, None),
        };
        Some(match Host::parse(host)? {
            Host::Name(host) => Authority { host, address: None, port },
            Host::Address(address) => Authority { host: address.to_string(), address: Some(address), port },
        })
    }

    /// As in `Host`. The port stands there if it did, or must.
    pub fn written(&self, port: u16, usual: u16) -> String {
        let host = match self.address {
            Some(IpAddr::V6(address)) => format!("[{address}]"),
            _ => self.host.clone(),
        };
        if self.port.is_some() || port != usual {
            format!("{host}:{port}")
        } else {
            host
        }
    }
}

/// How requests of a connection name their host.
#[derive(Debug, Clone)]
pub enum Naming {
    /// All are for the host of the connection.
    Fixed(Authority),
    /// Each says it, in `Host` or in an absolute URL.
    Each,
    /// Each says it in an absolute URL: those of a client of the explicit proxy.
    Absolute,
}

pub type Misnamed = (StatusCode, &'static str);

const INVALID: Misnamed = (StatusCode::BAD_REQUEST, "the host of the request is not valid");
const MISDIRECTED: Misnamed =
    (StatusCode::MISDIRECTED_REQUEST, "the host of the request is not that of the connection");

/// The host and port of a request on a connection to `port`.
pub fn of_request(head: &Parts, naming: &Naming, port: u16) -> Result<(Authority, u16), Misnamed> {
    let from_url = head.uri.authority().map(|text| {
        let plain = !text.as_str().contains('@');
        plain.then(|| Authority::parse(text.as_str())).flatten().ok_or(INVALID)
    });
    let from_header = head.headers.get(HOST).map(|value| value.to_str().ok().and_then(Authority::parse).ok_or(INVALID));
    let scheme = head.uri.scheme_str();
    match naming {
        Naming::Fixed(fixed) => {
            for named in [&from_url, &from_header].into_iter().flatten() {
                let named = named.as_ref().map_err(|fault| *fault)?;
                if named.host != fixed.host || named.port.is_some_and(|named| named != port) {
                    return Err(MISDIRECTED);
                }
            }
            let named = from_url.or(from_header).ok_or(INVALID)??;
            if scheme.is_some_and(|scheme| scheme != "https") {
                return Err(MISDIRECTED);
            }
            Ok((named, port))
        }
        Naming::Each | Naming::Absolute => {
            if scheme.is_some_and(|scheme| scheme != "http") {
                return Err((StatusCode::BAD_REQUEST, "only http URLs are taken here: use CONNECT for https"));
            }
            let absolute = from_url.is_some();
            let named = match from_url {
                // RFC 9112, section 3.2.2: the URL counts, and `Host` is written anew.
                Some(named) => named?,
                None if matches!(naming, Naming::Absolute) => {
                    return Err((StatusCode::BAD_REQUEST, "a request to a proxy must have an absolute URL"))
                }
                None => from_header.ok_or(INVALID)??,
            };
            if matches!(naming, Naming::Absolute) {
                let port = named.port.unwrap_or(80);
                return Ok((named, port));
            }
            if named.port.unwrap_or(if absolute { 80 } else { port }) != port && named.port.is_some() {
                return Err(MISDIRECTED);
            }
            Ok((named, port))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn named(uri: &str, host: Option<&str>, naming: &Naming, port: u16) -> Result<(String, u16), u16> {
        let mut request = Request::builder().uri(uri);
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let head = request.body(()).unwrap().into_parts().0;
        of_request(&head, naming, port).map(|(named, port)| (named.host, port)).map_err(|fault| fault.0.as_u16())
    }

    #[test]
    fn in_tls_every_name_must_be_that_of_the_connection() {
        let fixed = Naming::Fixed(Authority::parse("api.example.com").unwrap());
        let ok = Ok(("api.example.com".to_owned(), 443));
        assert_eq!(named("/", Some("api.example.com"), &fixed, 443), ok);
        assert_eq!(named("/", Some("API.example.com.:443"), &fixed, 443), ok);
        assert_eq!(named("https://api.example.com/x", None, &fixed, 443), ok);
        for (uri, host, status) in [
            ("/", Some("evil.example"), 421),
            ("/", Some("api.example.com:8443"), 421),
            ("/", Some("api.example.com.evil.example"), 421),
            ("https://evil.example/", Some("api.example.com"), 421),
            ("https://api.example.com/", Some("evil.example"), 421),
            ("http://api.example.com/", Some("api.example.com"), 421),
            ("/", None, 400),
            ("/", Some(""), 400),
            ("/", Some("api.example.com:0"), 400),
            ("/", Some("a b"), 400),
            ("https://user@api.example.com/", None, 400),
        ] {
            assert_eq!(named(uri, host, &fixed, 443), Err(status), "{uri} {host:?}");
        }
    }

    #[test]
    fn in_the_clear_each_request_names_its_host() {
        assert_eq!(named("/", Some("a.example"), &Naming::Each, 80), Ok(("a.example".to_owned(), 80)));
        assert_eq!(named("/", Some("a.example:8080"), &Naming::Each, 80), Err(421));
        assert_eq!(named("http://b.example/x", Some("a.example"), &Naming::Each, 80), Ok(("b.example".to_owned(), 80)));
        assert_eq!(
            named("http://b.example:81/x", Some("a.example"), &Naming::Absolute, 3128),
            Ok(("b.example".to_owned(), 81))
        );
        assert_eq!(named("http://b.example/x", None, &Naming::Absolute, 3128), Ok(("b.example".to_owned(), 80)));
        assert_eq!(named("/x", Some("a.example"), &Naming::Absolute, 3128), Err(400));
        assert_eq!(named("https://b.example/x", None, &Naming::Absolute, 3128), Err(400));
        assert_eq!(named("/", Some("2130706433"), &Naming::Each, 80), Err(400));
    }
}
