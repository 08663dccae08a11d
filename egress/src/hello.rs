//! The ClientHello of TLS (RFC 8446 § 4.1.2, RFC 6066 § 3), out of the first records of a connection. The sender is hostile: every length is
//! checked, nothing is kept beyond the bytes of the caller.

use crate::name;

const RECORD_HEADER_BYTES: usize = 5;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
const PROTOCOLS: u16 = 16;
const ENCRYPTED_HELLO: u16 = 0xfe0d;
/// RFC 8446 § 5.1.
const RECORD_BYTES_MAX: usize = 1 << 14;
const PROTOCOLS_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub name: ServerName,
    pub protocols: Vec<Vec<u8>>,
    /// Offered in earnest or as GREASE: nobody on the way can tell (RFC 9849 § 6.2).
    pub encrypted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerName {
    Absent,
    /// Not a name of a host: an address, or text that is none.
    Invalid,
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    Hello(Hello),
    /// More bytes are needed.
    Partial,
    /// It begins as TLS does, and is none.
    Broken,
}

/// Whether bytes may be the beginning of a TLS connection.
pub fn begins(bytes: &[u8]) -> bool {
    bytes.first() == Some(&HANDSHAKE) && bytes.get(1).is_none_or(|major| *major == 3)
}

pub fn parse(bytes: &[u8]) -> Parsed {
    let message = match handshake(bytes) {
        Ok(message) => message,
        Err(not) => return not,
    };
    let mut reader = Reader(&message);
    let (Some(kind), Some(length)) = (reader.byte(), reader.long()) else { return Parsed::Partial };
    if kind != CLIENT_HELLO {
        return Parsed::Broken;
    }
    match reader.take(length) {
        None => Parsed::Partial,
        Some(body) => hello(Reader(body)).map_or(Parsed::Broken, Parsed::Hello),
    }
}

/// The beginning of the handshake, put together of the records that it is split over.
fn handshake(bytes: &[u8]) -> Result<Vec<u8>, Parsed> {
    let mut message = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        if !begins(rest) {
            return Err(Parsed::Broken);
        }
        let Some(header) = rest.get(..RECORD_HEADER_BYTES) else { break };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        // An empty fragment is not allowed (RFC 8446 § 5.1), and would be progress without bytes.
        if length == 0 || length > RECORD_BYTES_MAX {
            return Err(Parsed::Broken);
        }
        let body = &rest[RECORD_HEADER_BYTES..];
        message.extend_from_slice(&body[..length.min(body.len())]);
        if complete(&message) || body.len() < length {
            break;
        }
        rest = &body[length..];
    }
    Ok(message)
}

fn complete(message: &[u8]) -> bool {
    let mut reader = Reader(message);
    reader.byte().is_some() && reader.long().is_some_and(|length| reader.0.len() >= length)
}

fn hello(mut reader: Reader<'_>) -> Option<Hello> {
    let mut hello = Hello { name: ServerName::Absent, protocols: Vec::new(), encrypted: false };
    let version = reader.short()?;
    if version >> 8 != 3 {
        return None;
    }
    reader.take(32)?;
    let session = reader.byte()?;
    reader.take(session.into())?;
    let ciphers = reader.short()?;
    reader.take(ciphers.into())?;
    let compressions = reader.byte()?;
    reader.take(compressions.into())?;
    if reader.0.is_empty() {
        return Some(hello);
    }
    let mut extensions = reader.block()?;
    if !reader.0.is_empty() {
        return None;
    }
    let mut seen = [false; 3];
    while !extensions.0.is_empty() {
        let kind = extensions.short()?;
        let body = extensions.block()?;
        let known = match kind {
            SERVER_NAME => 0,
            PROTOCOLS => 1,
            ENCRYPTED_HELLO => 2,
            _ => continue,
        };
        // Two of a kind: this side and the server could take different ones.
        if std::mem::replace(&mut seen[known], true) {
            return None;
        }
        match kind {
            SERVER_NAME => hello.name = server_name(body)?,
            PROTOCOLS => hello.protocols = protocols(body)?,
            _ => hello.encrypted = true,
        }
    }
    Some(hello)
}

fn server_name(mut body: Reader<'_>) -> Option<ServerName> {
    let mut list = body.block()?;
    if !body.0.is_empty() {
        return None;
    }
    // RFC 6066 allows one name of each type, and knows one type.
    let (kind, name) = (list.byte()?, list.block()?);
    if kind != HOST_NAME || !list.0.is_empty() {
        return Some(ServerName::Invalid);
    }
    let name = std::str::from_utf8(name.0).ok().and_then(name::normalise);
    Some(name.map_or(ServerName::Invalid, ServerName::Name))
}

fn protocols(mut body: Reader<'_>) -> Option<Vec<Vec<u8>>> {
    let mut list = body.block()?;
    let mut protocols = Vec::new();
    while !list.0.is_empty() {
        let length = list.byte()?;
        let protocol = list.take(length.into())?;
        if protocols.len() < PROTOCOLS_MAX {
            protocols.push(protocol.to_vec());
        }
    }
    Some(protocols)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn short(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A length of three bytes.
    fn long(&mut self) -> Option<usize> {
        self.take(3).map(|bytes| usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]))
    }

    /// What a length of two bytes stands before.
    fn block(&mut self) -> Option<Reader<'a>> {
        let length = self.short()?;
        self.take(length.into()).map(Reader)
    }
}

#[cfg(test)]
#[path = "hello_test.rs"]
mod tests;
