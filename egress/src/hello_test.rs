use super::*;

/// A ClientHello in one handshake message.
pub(crate) fn message(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (kind, body) in extensions {
        block.extend_from_slice(&kind.to_be_bytes());
        block.extend_from_slice(&(body.len() as u16).to_be_bytes());
        block.extend_from_slice(body);
    }
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.push(32);
    body.extend_from_slice(&[9; 32]);
    body.extend_from_slice(&[0, 4, 0x13, 1, 0x13, 2, 1, 0]);
    body.extend_from_slice(&(block.len() as u16).to_be_bytes());
    body.extend_from_slice(&block);
    let mut message = vec![CLIENT_HELLO];
    message.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
    message.extend_from_slice(&body);
    message
}

pub(crate) fn records(message: &[u8], bytes: usize) -> Vec<u8> {
    let mut records = Vec::new();
    for part in message.chunks(bytes) {
        records.extend_from_slice(&[HANDSHAKE, 3, 1]);
        records.extend_from_slice(&(part.len() as u16).to_be_bytes());
        records.extend_from_slice(part);
    }
    records
}

pub(crate) fn named(name: &[u8]) -> (u16, Vec<u8>) {
    let mut body = ((name.len() + 3) as u16).to_be_bytes().to_vec();
    body.push(HOST_NAME);
    body.extend_from_slice(&(name.len() as u16).to_be_bytes());
    body.extend_from_slice(name);
    (SERVER_NAME, body)
}

fn name_of(extensions: &[(u16, Vec<u8>)]) -> Option<ServerName> {
    match parse(&records(&message(extensions), 1 << 14)) {
        Parsed::Hello(hello) => Some(hello.name),
        _ => None,
    }
}

#[test]
fn name_and_protocols_are_read() {
    let protocols = (PROTOCOLS, b"\x00\x0c\x02h2\x08http/1.1".to_vec());
    let hello = records(&message(&[(0x2a2a, vec![]), named(b"API.example.com"), protocols]), 1 << 14);
    let expected = Hello {
        name: ServerName::Name("api.example.com".into()),
        protocols: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        encrypted: false,
    };
    assert_eq!(parse(&hello), Parsed::Hello(expected));
}

#[test]
fn a_hello_is_read_however_it_is_split() {
    let message = message(&[named(b"a.example"), (21, vec![0; 3000]), (ENCRYPTED_HELLO, vec![0; 200])]);
    let whole = parse(&records(&message, 1 << 14));
    assert!(
        matches!(&whole, Parsed::Hello(hello) if hello.encrypted && hello.name == ServerName::Name("a.example".into()))
    );
    for bytes in [1, 2, 3, 5, 100, 1000] {
        let split = records(&message, bytes);
        assert_eq!(parse(&split), whole, "records of {bytes}");
        for cut in (0..split.len()).step_by(97).chain(0..20) {
            assert_eq!(parse(&split[..cut]), Parsed::Partial, "records of {bytes}, cut at {cut}");
        }
    }
    // What follows the hello is not looked at.
    let mut early = records(&message, 1 << 14);
    early.extend_from_slice(b"\x17\x03\x03\x00\x05early");
    assert_eq!(parse(&early), whole);
}

#[test]
fn names_that_are_none_are_told_apart_from_absent_ones() {
    assert_eq!(name_of(&[]), Some(ServerName::Absent));
    for bad in [&b"10.0.0.1"[..], b"::1", b"", b"a..b", b"a b", b"a\0b", b"\xff", b"1.2.3"] {
        assert_eq!(name_of(&[named(bad)]), Some(ServerName::Invalid), "{bad:?}");
    }
    let mut two = named(b"a.example").1;
    two.extend_from_slice(b"\x00\x00\x09b.example");
    let length = (two.len() - 2) as u16;
    two[..2].copy_from_slice(&length.to_be_bytes());
    assert_eq!(name_of(&[(SERVER_NAME, two)]), Some(ServerName::Invalid));
    assert_eq!(name_of(&[named(b"a.example"), named(b"b.example")]), None);
}

#[test]
fn what_is_no_hello_is_broken() {
    let good = records(&message(&[named(b"a.example")]), 1 << 14);
    let broken = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        assert_eq!(parse(&bytes), Parsed::Broken);
    };
    broken(&|bytes| bytes[5] = 2);
    broken(&|bytes| bytes[9] = 2);
    broken(&|bytes| bytes[3..5].copy_from_slice(&[0, 0]));
    broken(&|bytes| bytes[3..5].copy_from_slice(&[0xff, 0xff]));
    // The second record of a split hello is of another type.
    let mut mixed = records(&message(&[named(b"a.example")]), 50);
    mixed[55] = 23;
    assert_eq!(parse(&mixed), Parsed::Broken);
}

#[test]
fn random_bytes_and_changed_hellos_do_no_harm() {
    let mut random = crate::random_for_tests::Random::new(1);
    let good = records(&message(&[named(b"a.example"), (PROTOCOLS, b"\x00\x03\x02h2".to_vec())]), 60);
    for _ in 0..50_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + random.below(8) {
            let at = random.below(bytes.len());
            bytes[at] = random.byte();
        }
        bytes.truncate(1 + random.below(bytes.len()));
        let _ = parse(&bytes);
        let noise: Vec<u8> = (0..random.below(200)).map(|_| random.byte()).collect();
        let _ = parse(&noise);
        let mut begun = vec![HANDSHAKE, 3, 1, 0, random.byte(), 1];
        begun.extend_from_slice(&noise);
        let _ = parse(&begun);
    }
}
