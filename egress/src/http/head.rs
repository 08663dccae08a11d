//! The grammar of HTTP/1.1 as far as two programs must read it alike (RFC 9112).

use super::headers;

/// What follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Head,
    Length(u64),
    Chunks,
    /// An upgrade.
    Raw,
    /// It was CONNECT, which is refused.
    Nothing,
}

type Field<'a> = (&'a [u8], &'a [u8]);

/// The fields of a head or of trailers, without the line end of the last.
pub fn fields(text: &[u8]) -> impl Iterator<Item = Result<Field<'_>, &'static str>> {
    let lines = (!text.is_empty()).then(|| text.split(|&byte| byte == b'\n')).into_iter().flatten();
    lines.map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            return Err("a header is folded over lines");
        }
        if line.iter().any(|byte| matches!(byte, b'\r' | 0)) {
            return Err("a header has a byte that is not allowed");
        }
        let colon = line.iter().position(|&byte| byte == b':').ok_or("a header has no colon")?;
        let name = &line[..colon];
        if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
            return Err("the name of a header is not valid");
        }
        Ok((name, line[colon + 1..].trim_ascii()))
    })
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// What follows a head (with its empty line).
pub fn read(head: &[u8]) -> Result<Next, &'static str> {
    let line_end = memchr::memchr(b'\r', head).unwrap_or(head.len());
    let (line, rest) = head.split_at(line_end);
    let parts: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [method, target, version] = parts[..] else { return Err("the request line is not valid") };
    if target.is_empty() || target.iter().any(|&byte| byte <= b' ' || byte == 127) {
        return Err("the request target is not valid");
    }
    let text = rest
        .strip_prefix(b"\r\n")
        .and_then(|rest| rest.strip_suffix(b"\r\n"))
        .ok_or("the request line is not valid")?;
    let text = text.strip_suffix(b"\r\n").unwrap_or(text);
    let (mut length, mut chunked, mut hosts): (Option<&[u8]>, bool, usize) = (None, false, 0);
    let (mut upgrade, mut connection_upgrade) = (false, false);
    for field in fields(text) {
        let (name, value) = field?;
        if name.eq_ignore_ascii_case(b"content-length") {
            if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
                return Err("Content-Length is not valid");
            }
            if length.is_some_and(|known| known != value) {
                return Err("Content-Length is told twice");
            }
            length = Some(value);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err("Transfer-Encoding is not just chunked");
            }
            chunked = true;
        } else if name.eq_ignore_ascii_case(b"host") {
            hosts += 1;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            upgrade |= headers::is_upgrade(value);
        } else if name.eq_ignore_ascii_case(b"connection") {
            connection_upgrade |= headers::lists_upgrade(value);
        }
    }
    let modern = version == b"HTTP/1.1";
    if hosts > 1 || (modern && hosts == 0) {
        return Err("a request must have one Host");
    }
    if chunked && (length.is_some() || !modern) {
        return Err("Transfer-Encoding and Content-Length are both told");
    }
    if method == b"CONNECT" {
        return Ok(Next::Nothing);
    }
    let length = length.and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok()).unwrap_or(0);
    Ok(match (chunked, length) {
        (true, _) if upgrade && connection_upgrade => return Err("an upgrade has a body"),
        (false, 1..) if upgrade && connection_upgrade => return Err("an upgrade has a body"),
        (true, _) => Next::Chunks,
        (false, 1..) => Next::Length(length),
        _ if modern && upgrade && connection_upgrade => Next::Raw,
        _ => Next::Head,
    })
}

pub fn chunk_size(line: &[u8]) -> Result<u64, &'static str> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let extension = &line[digits..];
    if digits == 0 || digits > 15 || !(extension.is_empty() || extension[0] == b';') {
        return Err("the size of a chunk is not valid");
    }
    if extension.iter().any(|&byte| byte != b'\t' && (byte < b' ' || byte == 127)) {
        return Err("the extension of a chunk is not valid");
    }
    std::str::from_utf8(&line[..digits])
        .ok()
        .and_then(|text| u64::from_str_radix(text, 16).ok())
        .ok_or("the size of a chunk is not valid")
}
