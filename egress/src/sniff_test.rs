use super::*;
use crate::hello::ServerName;
use crate::random_for_tests::Random;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// A ClientHello with a name, as openssl sends the parts that are looked at.
fn client_hello(name: &str) -> Vec<u8> {
    let name = name.as_bytes();
    let sizes = |length: usize| (length as u16).to_be_bytes();
    let mut extension = vec![0, 0];
    extension.extend_from_slice(&sizes(name.len() + 5));
    extension.extend_from_slice(&sizes(name.len() + 3));
    extension.push(0);
    extension.extend_from_slice(&sizes(name.len()));
    extension.extend_from_slice(name);
    let mut body = vec![3, 3];
    body.extend_from_slice(&[1; 32]);
    body.extend_from_slice(&[0, 0, 2, 0x13, 1, 1, 0]);
    body.extend_from_slice(&sizes(extension.len()));
    body.extend_from_slice(&extension);
    let mut message = vec![1, 0];
    message.extend_from_slice(&sizes(body.len()));
    message.extend_from_slice(&body);
    let mut record = vec![22, 3, 1];
    record.extend_from_slice(&sizes(message.len()));
    record.extend_from_slice(&message);
    record
}

#[test]
fn http_is_known_by_its_first_line() {
    for line in [
        "GET / HTTP/1.1\r\n",
        "get /x http/1.0\n",
        "\r\n\r\nPOST /a b HTTP/1.1\r\n",
        "M-SEARCH * HTTP/1.1\r\n",
        "GET\t/\tHTTP/1.1\r\n",
    ] {
        assert_eq!(classify(line.as_bytes()), Some(Kind::Http), "{line:?}");
    }
    assert_eq!(classify(HTTP2_PREFACE), Some(Kind::Http));
    assert_eq!(classify(b"PRI * HTT"), None);
    assert_eq!(classify(b"GET /a-long-path"), None);
    // A request without a version would reach a server that reads it as HTTP/0.9.
    assert_eq!(classify(b"GET /secret\r\n"), Some(Kind::Broken));
    assert_eq!(classify(&[b"GET /".to_vec(), vec![b'a'; HEAD_BYTES_MAX]].concat()), Some(Kind::Broken));
}

#[test]
fn other_protocols_tell_no_name() {
    for first in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"NICK someone\r\n",
        b"EHLO a\r\n",
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x80\x2e\x01\x03",
    ] {
        assert_eq!(classify(first), Some(Kind::Opaque), "{first:?}");
    }
    assert_eq!(classify(b"SSH"), None);
    assert_eq!(classify(b""), None);
}

#[test]
fn tls_that_cannot_be_read_is_broken_at_the_bound() {
    let mut endless = vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
    assert_eq!(classify(&endless), None);
    endless.resize(HEAD_BYTES_MAX, 0);
    assert!(matches!(classify(&endless), Some(Kind::Broken)));
}

#[test]
fn more_bytes_never_change_what_was_clear() {
    let mut random = Random::new(7);
    let seeds = [
        client_hello("a.example"),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"SSH-2.0-x\r\n".to_vec(),
        HTTP2_PREFACE.to_vec(),
    ];
    for round in 0..20_000 {
        let mut bytes = seeds[round % seeds.len()].clone();
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] = random.byte();
        }
        let clear = (1..=bytes.len()).find_map(|length| classify(&bytes[..length]));
        if let Some(kind) = clear {
            assert_eq!(classify(&bytes), Some(kind), "{bytes:?}");
        }
    }
}

#[tokio::test]
async fn first_bytes_are_gathered_over_segments() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let mut buffer = Vec::new();
    let silent = sniff(&server, &mut buffer, Some(Duration::from_millis(1)), end).await.unwrap();
    assert_eq!(silent, Sniffed::Silent);
    let hello = client_hello("slow.example");
    let sent = hello.clone();
    let writing = tokio::spawn(async move {
        client.set_nodelay(true).unwrap();
        for byte in sent {
            client.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        client
    });
    let sniffed = sniff(&server, &mut buffer, None, end).await.unwrap();
    assert!(
        matches!(sniffed, Sniffed::Kind(Kind::Tls(hello)) if hello.name == ServerName::Name("slow.example".into()))
    );
    assert_eq!(buffer, hello);
    drop(writing.await.unwrap());
    buffer.clear();
    assert_eq!(sniff(&server, &mut buffer, None, end).await.unwrap(), Sniffed::Closed);
}
