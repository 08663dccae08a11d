use super::*;
use tokio::net::TcpListener;

fn text(upstream: &Upstream) -> (String, u16, Option<(String, String)>) {
    let credentials = upstream.credentials.as_ref().map(|(user, password)| (user.to_string(), password.to_string()));
    (host_text(upstream), upstream.port, credentials)
}

#[test]
fn a_url_names_the_proxy() {
    let parsed = Upstream::parse("http://me:p%40ss%3A@Proxy.example:3128/").unwrap();
    assert_eq!(text(&parsed), ("proxy.example".into(), 3128, Some(("me".into(), "p@ss:".into()))));
    let parsed = Upstream::parse("socks5://192.0.2.1:1080").unwrap();
    assert_eq!((text(&parsed), parsed.scheme), (("192.0.2.1".into(), 1080, None), Scheme::Socks5));
    for bad in ["https://a:1", "http://a", "http://a:0", "http://a b:1", "socks5://u:%zz@a:1", "http://:1"] {
        assert!(Upstream::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn base64_is_padded() {
    let encoded = |bytes: &[u8]| {
        let mut text = String::new();
        push_base64(&mut text, bytes);
        text
    };
    assert_eq!(
        ["", "f", "fo", "foo", "foob", "fooba"].map(|text| encoded(text.as_bytes())),
        ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE="]
    );
}

async fn proxy(url: &str) -> (Upstream, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url.replace("PROXY", &listener.local_addr().unwrap().to_string());
    (Upstream::parse(&url).unwrap(), listener)
}

async fn read_until(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test]
async fn connect_takes_the_head_and_leaves_the_rest() {
    let (upstream, listener) = proxy("http://u:p@PROXY").await;
    let expected = b"CONNECT a.example:22 HTTP/1.1\r\nHost: a.example:22\r\nProxy-Authorization: Basic dTpw\r\n\r\n";
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_eq!(read_until(&mut stream, expected.len()).await, expected);
        stream.write_all(b"HTTP/1.1 200 OK\r\nVia: x\r\n\r").await.unwrap();
        tokio::task::yield_now().await;
        stream.write_all(b"\nSSH-2.0-server").await.unwrap();
    });
    let mut stream = TcpStream::connect(address(&upstream)).await.unwrap();
    upstream.connect_http(&mut stream, &Destination::Name("a.example".into(), 22)).await.unwrap();
    assert_eq!(read_until(&mut stream, 14).await, b"SSH-2.0-server");
    serving.await.unwrap();
}

#[tokio::test]
async fn a_refusal_of_the_proxy_is_a_fault() {
    for answer in ["HTTP/1.1 407 No\r\n\r\n", "HTTP/1.1 2xx\r\n\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\n"] {
        let (upstream, listener) = proxy("http://PROXY").await;
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        let mut stream = TcpStream::connect(address(&upstream)).await.unwrap();
        assert!(
            upstream.connect_http(&mut stream, &Destination::Name("a.example".into(), 22)).await.is_err(),
            "{answer}"
        );
        drop(stream);
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn socks_is_told_the_name() {
    let (upstream, listener) = proxy("socks5://me:secret@PROXY").await;
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_eq!(read_until(&mut stream, 3).await, [5, 1, 2]);
        stream.write_all(&[5, 2]).await.unwrap();
        assert_eq!(read_until(&mut stream, 11).await, b"\x01\x02me\x06secret");
        stream.write_all(&[1, 0]).await.unwrap();
        assert_eq!(read_until(&mut stream, 16).await, b"\x05\x01\x00\x03\x09a.example\x01\xbb");
        stream.write_all(b"\x05\x00\x00\x03\x02xy\x00\x01hello").await.unwrap();
    });
    let mut stream = TcpStream::connect(address(&upstream)).await.unwrap();
    upstream.connect_socks(&mut stream, &Destination::Name("a.example".into(), 443)).await.unwrap();
    assert_eq!(read_until(&mut stream, 5).await, b"hello");
    serving.await.unwrap();
}

fn address(upstream: &Upstream) -> SocketAddr {
    match &upstream.host {
        Host::Address(address) => SocketAddr::new(*address, upstream.port),
        Host::Name(_) => unreachable!("the proxy of a test is an address"),
    }
}
