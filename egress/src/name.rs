//! Names of hosts as rules, TLS, HTTP and DNS write them. All comparisons are of normalised names, so that no spelling escapes a rule.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// RFC 1035 § 2.3.4, as text without the dot at the end.
pub const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// What a client calls a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    Name(String),
    Address(IpAddr),
}

impl Host {
    /// A name, an IPv4 address, or an IPv6 address with or without brackets. Other spellings of addresses (`127.1`, `0x7f000001`) are nothing:
    /// programs disagree about them.
    pub fn parse(text: &str) -> Option<Host> {
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Host::Address(address.into()));
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<Ipv6Addr>() {
            return Some(Host::Address(IpAddr::V6(address).to_canonical()));
        }
        normalise(text).map(Host::Name)
    }
}

/// The name in lower case and without the dot at the end; absent if it is none. Underscores are taken, as in `_acme-challenge`.
pub fn normalise(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.split('.').all(is_label) {
        return None;
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    (!looks_numeric(last)).then(|| name.to_ascii_lowercase())
}

fn is_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    (1..=LABEL_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && bytes[0] != b'-'
        && bytes[bytes.len() - 1] != b'-'
}

/// A last label that some programs read as a number makes an address of the whole (WHATWG URL, «ends in a number»).
fn looks_numeric(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    label.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether a pattern of a rule or a secret (`api.example.com`, `*.example.com`, `*`) holds for a normalised name.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some("") => true,
        Some(suffix) => suffix.starts_with('.') && name.len() > suffix.len() && name.ends_with(suffix),
        None => pattern == name,
    }
}

/// The pattern of a rule in its one spelling; absent if it is none.
pub fn normalise_pattern(text: &str) -> Option<String> {
    match text.strip_prefix("*.") {
        Some(rest) => normalise(rest).map(|name| format!("*.{name}")),
        None if text == "*" => Some(text.to_owned()),
        None => normalise(text),
    }
}

/// Whether a name stands for the sandbox itself (RFC 6761 § 6.3).
pub fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_spelling() {
        assert_eq!(normalise("API.Example.COM.").as_deref(), Some("api.example.com"));
        assert_eq!(normalise("_dmarc.example.com").as_deref(), Some("_dmarc.example.com"));
        for bad in [
            "",
            ".",
            "a..b",
            ".a",
            "-a.b",
            "a-.b",
            "a b",
            "a/b",
            "ü.example",
            "1.2.3",
            "127.1",
            "a.0x7f",
            "x:1",
            "a\0b",
        ] {
            assert_eq!(normalise(bad), None, "{bad:?}");
        }
        assert_eq!(normalise(&"a".repeat(64)), None);
        assert_eq!(normalise(&"a.".repeat(127)).map(|name| name.len()), Some(253));
        assert_eq!(normalise(&"a.".repeat(128)), None);
    }

    #[test]
    fn an_address_is_never_a_name() {
        assert_eq!(Host::parse("10.0.0.1"), Some(Host::Address("10.0.0.1".parse().unwrap())));
        assert_eq!(Host::parse("[::ffff:10.0.0.1]"), Some(Host::Address("10.0.0.1".parse().unwrap())));
        assert_eq!(Host::parse("::1"), Some(Host::Address("::1".parse().unwrap())));
        for bad in ["0177.0.0.1", "10.1", "2130706433", "0x7f.1", "[fe80::1%eth0]", "10.0.0.1."] {
            assert_eq!(Host::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_wildcard_is_any_depth_below() {
        assert!(matches("*.example.com", "a.b.example.com"));
        assert!(!matches("*.example.com", "example.com"));
        assert!(!matches("*.example.com", "badexample.com"));
        assert!(!matches("*ample.com", "example.com"));
        assert!(matches("*", "anything"));
        assert_eq!(normalise_pattern("*.Example.com.").as_deref(), Some("*.example.com"));
        assert_eq!(normalise_pattern("a.*.com"), None);
    }
}
