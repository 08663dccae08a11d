//! Headers that are of one connection and not of the message (RFC 9110, section 7.6.1).

use http::header::{HeaderName, HeaderValue, CONNECTION, TE, TRANSFER_ENCODING, UPGRADE};
use http::HeaderMap;

const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("http2-settings"),
];
/// An answer of the proxy itself names these; a host cannot.
const OF_RESPONSES: [HeaderName; 3] = [
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authentication-info"),
    // It would send clients to HTTP/3 and to other hosts, where nothing is decided per request.
    HeaderName::from_static("alt-svc"),
];
/// `Connection` cannot take these away: they belong to the message.
const KEPT: [&str; 6] = ["host", "content-length", "content-type", "content-encoding", "authorization", "te"];

/// Takes them out, those that `Connection` lists too. `TE: trailers` stays.
pub fn strip(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !KEPT.contains(&name.as_str()))
        .collect();
    for name in listed.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    let trailers = headers.get_all(TE).iter().any(|value| {
        value.as_bytes().split(|&byte| byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    });
    headers.remove(TE);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

pub fn strip_response(headers: &mut HeaderMap) {
    strip(headers);
    for name in &OF_RESPONSES {
        headers.remove(name);
    }
}

/// Whether a value of `Upgrade` names a protocol that is passed through. Other versions of HTTP and TLS are not: their requests could not be read.
pub fn is_upgrade(value: &[u8]) -> bool {
    let mut names =
        value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()).peekable();
    names.peek().is_some()
        && names.all(|name| {
            let lower = name.to_ascii_lowercase();
            !(lower.starts_with(b"h2")
                || lower.starts_with(b"h3")
                || lower.starts_with(b"http")
                || lower.starts_with(b"tls"))
        })
}

/// Whether a value of `Connection` lists `upgrade`.
pub fn lists_upgrade(value: &[u8]) -> bool {
    value.split(|&byte| byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

/// Whether a request asks for an upgrade, as `strict` sees it: after it nothing is read as HTTP any more.
pub fn asks_upgrade(headers: &HeaderMap) -> bool {
    headers.get_all(UPGRADE).iter().any(|value| is_upgrade(value.as_bytes()))
        && headers.get_all(CONNECTION).iter().any(|value| lists_upgrade(value.as_bytes()))
}

/// The protocol that a request asks to go over to, if it is one.
pub fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut values = headers.get_all(UPGRADE).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    asks_upgrade(headers).then(|| value.clone())
}

/// About what headers take on the wire of HTTP/1.1.
pub fn bytes_of(headers: &HeaderMap) -> u64 {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn what_is_of_the_connection_goes_and_the_rest_stays() {
        let mut map = headers(&[
            ("connection", "close, X-Private, te, Authorization, host"),
            ("x-private", "1"),
            ("te", "gzip, trailers"),
            ("proxy-authorization", "Basic x"),
            ("keep-alive", "1"),
            ("authorization", "Bearer x"),
            ("host", "a.example"),
            ("upgrade", "h2c"),
            ("http2-settings", "x"),
        ]);
        strip(&mut map);
        assert_eq!(map, headers(&[("authorization", "Bearer x"), ("host", "a.example"), ("te", "trailers")]));
    }

    #[test]
    fn only_an_upgrade_to_another_protocol_counts() {
        let asked = |upgrade| upgrade_of(&headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", upgrade)]));
        assert_eq!(asked("websocket").unwrap(), "websocket");
        for refused in ["h2c", "HTTP/2.0", "TLS/1.0", "websocket, h2c", ""] {
            assert!(asked(refused).is_none(), "{refused}");
        }
        assert!(upgrade_of(&headers(&[("upgrade", "websocket")])).is_none());
    }
}
