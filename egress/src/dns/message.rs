//! DNS messages (RFC 1035, RFC 6891). Everything that is read comes from a hostile sender.

use crate::name;
use std::net::Ipv4Addr;

pub const A: u16 = 1;
pub const CNAME: u16 = 5;
pub const AAAA: u16 = 28;
pub const OPT: u16 = 41;
pub const SVCB: u16 = 64;
pub const HTTPS: u16 = 65;
pub const IN: u16 = 1;

pub const NO_ERROR: u8 = 0;
pub const FORMAT_ERROR: u8 = 1;
pub const SERVER_FAILURE: u8 = 2;
pub const NO_SUCH_NAME: u8 = 3;
pub const NOT_IMPLEMENTED: u8 = 4;
pub const REFUSED: u8 = 5;

const HEADER_BYTES: usize = 12;
const RECORDS_MAX: u16 = 256;
/// Addresses taken of one answer.
pub const ADDRESSES_MAX: usize = 32;
/// Names that one stands for in turn.
pub const CHAIN_MAX: usize = 16;
const WIRE_NAME_BYTES_MAX: usize = 255;
/// What a sender may expect to fit without a word about it (RFC 1035 § 4.2.1).
pub const PLAIN_UDP_BYTES: usize = 512;
/// What passes every network in one piece.
pub const UDP_BYTES_MAX: usize = 1232;

const RESPONSE: u16 = 0x8000;
const OPCODE: u16 = 0x7800;
const TRUNCATED: u16 = 0x0200;
const RECURSION_DESIRED: u16 = 0x0100;
const RECURSION_AVAILABLE: u16 = 0x0080;
const POINTER_TO_QUESTION: [u8; 2] = [0xC0, HEADER_BYTES as u8];

/// A question of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    id: u16,
    recursion_desired: bool,
    /// The section as sent, for the echo.
    section: Vec<u8>,
    /// Absent when it is not the name of a host.
    pub name: Option<String>,
    pub kind: u16,
    pub class: u16,
    /// Bytes that an answer over UDP may have; absent without EDNS.
    udp_bytes: Option<u16>,
}

/// What cannot be understood, with the answer to it if one is due.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(pub Option<Vec<u8>>);

impl Question {
    pub fn parse(message: &[u8]) -> Result<Question, Malformed> {
        let mut reader = Reader { message, at: 0, pointed: false };
        let (id, flags) = reader.header_start().ok_or(Malformed(None))?;
        if flags & RESPONSE != 0 {
            return Err(Malformed(None));
        }
        let error = |code: u8| {
            let mut answer = Vec::with_capacity(HEADER_BYTES);
            for word in [id, RESPONSE | (flags & (OPCODE | RECURSION_DESIRED)) | u16::from(code), 0, 0, 0, 0] {
                answer.extend_from_slice(&word.to_be_bytes());
            }
            Malformed(Some(answer))
        };
        if flags & OPCODE != 0 {
            return Err(error(NOT_IMPLEMENTED));
        }
        reader.question(id, flags).ok_or_else(|| error(FORMAT_ERROR))
    }

    /// Bytes that an answer over UDP may have.
    pub fn udp_bytes_max(&self) -> usize {
        self.udp_bytes.map_or(PLAIN_UDP_BYTES, |bytes| usize::from(bytes).clamp(PLAIN_UDP_BYTES, UDP_BYTES_MAX))
    }

    /// An answer without records.
    pub fn refuse(&self, code: u8) -> Vec<u8> {
        self.answer(code, 0, &[])
    }

    /// The addresses of the name, by way of those that it stands for.
    pub fn addresses(&self, chain: &[String], addresses: &[Ipv4Addr], ttl: u32, bytes_max: usize) -> Vec<u8> {
        let mut records: Vec<Vec<u8>> = Vec::new();
        let mut owner = POINTER_TO_QUESTION.to_vec();
        let record = |owner: &[u8], kind: u16, data: &[u8]| {
            let mut record = owner.to_vec();
            record.extend_from_slice(&kind.to_be_bytes());
            record.extend_from_slice(&IN.to_be_bytes());
            record.extend_from_slice(&ttl.to_be_bytes());
            record.extend_from_slice(&(data.len() as u16).to_be_bytes());
            record.extend_from_slice(data);
            record
        };
        for target in chain {
            let wire = wire_name(target);
            records.push(record(&owner, CNAME, &wire));
            owner = wire;
        }
        records.extend(addresses.iter().map(|address| record(&owner, A, &address.octets())));
        let answer = self.answer(NO_ERROR, 0, &records);
        if answer.len() <= bytes_max {
            return answer;
        }
        self.answer(NO_ERROR, TRUNCATED, &[])
    }

    fn answer(&self, code: u8, flags: u16, records: &[Vec<u8>]) -> Vec<u8> {
        let desired = if self.recursion_desired { RECURSION_DESIRED } else { 0 };
        let flags = RESPONSE | RECURSION_AVAILABLE | desired | flags | u16::from(code);
        let extra = u16::from(self.udp_bytes.is_some());
        let mut answer = Vec::with_capacity(PLAIN_UDP_BYTES);
        for word in [self.id, flags, 1, records.len() as u16, 0, extra] {
            answer.extend_from_slice(&word.to_be_bytes());
        }
        answer.extend_from_slice(&self.section);
        records.iter().for_each(|record| answer.extend_from_slice(record));
        if self.udp_bytes.is_some() {
            answer.extend_from_slice(&opt_record());
        }
        answer
    }

    /// The answer of a resolver to the same question, under the number of the sandbox's; cut short if it does not fit.
    pub fn forwarded(&self, mut answer: Vec<u8>, bytes_max: usize) -> Vec<u8> {
        if answer.len() > bytes_max || answer.len() < HEADER_BYTES {
            return self.answer(NO_ERROR, TRUNCATED, &[]);
        }
        answer[..2].copy_from_slice(&self.id.to_be_bytes());
        answer
    }
}

/// A question to a resolver.
pub fn query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut message = Vec::with_capacity(PLAIN_UDP_BYTES);
    for word in [id, RECURSION_DESIRED, 1, 0, 0, 1] {
        message.extend_from_slice(&word.to_be_bytes());
    }
    message.extend_from_slice(&wire_name(name));
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&IN.to_be_bytes());
    message.extend_from_slice(&opt_record());
    message
}

fn opt_record() -> [u8; 11] {
    let [high, low] = (UDP_BYTES_MAX as u16).to_be_bytes();
    [0, 0, OPT as u8, high, low, 0, 0, 0, 0, 0, 0]
}

/// A normalised name has labels of at most 63 bytes.
fn wire_name(name: &str) -> Vec<u8> {
    let mut wire = Vec::with_capacity(name.len() + 2);
    for label in name.split('.') {
        wire.push(label.len() as u8);
        wire.extend_from_slice(label.as_bytes());
    }
    wire.push(0);
    wire
}

/// What a resolver answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub code: u8,
    pub truncated: bool,
    /// Of the records of class IN.
    pub records: Vec<(String, Record)>,
    pub ttl: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    Address(Ipv4Addr),
    Alias(String),
}

impl Response {
    /// Absent unless it is a well-formed answer to exactly this question.
    pub fn parse(message: &[u8], id: u16, name: &str, kind: u16) -> Option<Response> {
        let mut reader = Reader { message, at: 0, pointed: false };
        let (got, flags) = reader.header_start()?;
        let (questions, answers) = (reader.word()?, reader.word()?);
        reader.skip(4)?;
        let asked = reader.name()?;
        let echoes = name::normalise(&asked?).as_deref() == Some(name)
            && (reader.word()?, reader.word()?) == (kind, IN)
            && (got, questions) == (id, 1)
            && flags & RESPONSE != 0
            && flags & OPCODE == 0;
        if !echoes || answers > RECORDS_MAX {
            return None;
        }
        let code = (flags & 0xF) as u8;
        let truncated = flags & TRUNCATED != 0;
        let mut response = Response { code, truncated, records: Vec::new(), ttl: u32::MAX };
        if truncated {
            return Some(response);
        }
        for _ in 0..answers {
            reader.record(&mut response)?;
        }
        Some(response)
    }
}

struct Reader<'a> {
    message: &'a [u8],
    at: usize,
    /// Whether a name had a part elsewhere.
    pointed: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let bytes = self.message.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(bytes)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(drop)
    }

    fn word(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn long(&mut self) -> Option<u32> {
        Some(u32::from(self.word()?) << 16 | u32::from(self.word()?))
    }

    fn header_start(&mut self) -> Option<(u16, u16)> {
        if self.message.len() < HEADER_BYTES {
            return None;
        }
        Some((self.word()?, self.word()?))
    }

    fn question(&mut self, id: u16, flags: u16) -> Option<Question> {
        let [questions, answers, authorities, extras] = [self.word()?, self.word()?, self.word()?, self.word()?];
        if (questions, answers, authorities) != (1, 0, 0) || extras > 2 {
            return None;
        }
        let start = self.at;
        let text = self.name()?;
        let (kind, class) = (self.word()?, self.word()?);
        let section = self.message[start..self.at].to_vec();
        // A name of which parts stand elsewhere cannot be echoed.
        if self.pointed {
            return None;
        }
        let mut udp_bytes = None;
        for _ in 0..extras {
            let owner = self.name()?;
            let (kind, class) = (self.word()?, self.word()?);
            self.skip(4)?;
            let length = self.word()?;
            self.skip(length.into())?;
            if kind == OPT {
                if owner.as_deref() != Some("") || udp_bytes.is_some() {
                    return None;
                }
                udp_bytes = Some(class);
            }
        }
        if self.at != self.message.len() {
            return None;
        }
        let recursion_desired = flags & RECURSION_DESIRED != 0;
        let name = text.and_then(|text| name::normalise(&text));
        Some(Question { id, recursion_desired, section, name, kind, class, udp_bytes })
    }

    fn record(&mut self, response: &mut Response) -> Option<()> {
        let owner = self.name()?.and_then(|owner| name::normalise(&owner));
        let (kind, class, ttl, length) = (self.word()?, self.word()?, self.long()?, usize::from(self.word()?));
        let end = self.at.checked_add(length).filter(|end| *end <= self.message.len())?;
        let record = match kind {
            A if class == IN => Some(Record::Address(<[u8; 4]>::try_from(self.take(length)?).ok()?.into())),
            CNAME if class == IN => {
                let target = self.name()?.and_then(|target| name::normalise(&target));
                target.map(Record::Alias)
            }
            _ => {
                self.skip(length)?;
                None
            }
        };
        if self.at != end {
            return None;
        }
        if let (Some(owner), Some(record)) = (owner, record) {
            response.records.push((owner, record));
            // A time with the highest bit set is none (RFC 2181 § 8).
            response.ttl = response.ttl.min(if ttl >> 31 == 0 { ttl } else { 0 });
        }
        Some(())
    }

    /// A name as text without the last dot; the inner absence is one that text cannot hold. Pointers lead backwards only, so that each ends.
    fn name(&mut self) -> Option<Option<String>> {
        let mut text = String::new();
        let mut printable = true;
        let (mut at, mut bound) = (self.at, self.at);
        let mut after: Option<usize> = None;
        let mut bytes = 1;
        loop {
            let length = usize::from(*self.message.get(at)?);
            match length & 0xC0 {
                0 if length == 0 => {
                    self.at = after.unwrap_or(at + 1);
                    return Some(printable.then_some(text));
                }
                0 => {
                    let label = self.message.get(at + 1..at + 1 + length)?;
                    bytes += length + 1;
                    if bytes > WIRE_NAME_BYTES_MAX {
                        return None;
                    }
                    printable &= label.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'.');
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.extend(label.iter().map(|byte| char::from(*byte)));
                    at += 1 + length;
                }
                0xC0 => {
                    let to = (length & 0x3F) << 8 | usize::from(*self.message.get(at + 1)?);
                    if to >= bound {
                        return None;
                    }
                    self.pointed = true;
                    after.get_or_insert(at + 2);
                    (at, bound) = (to, to);
                }
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
#[path = "message_test.rs"]
mod tests;
