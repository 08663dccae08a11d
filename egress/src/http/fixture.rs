//! A sandbox, its connection, and a host behind it, all in one process.

use super::body::{self, Body};
use super::{serve_plain, serve_tls};
use crate::authority::{self, Authority};
use crate::compiled::CompiledPlan;
use crate::connection::Connection;
use crate::egress::Egress;
use crate::model::{Plan, Start};
use crate::output::Output;
use crate::tls;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{json, Value};
use std::future::Future;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, Notify};

pub const HOST: &str = "api.example.com";
pub const VALUE: &str = "s3cret/val+ue";
pub const PLACEHOLDER: &str = "osb_sealed_0123456789abcdef";

const NAMES: [&str; 5] = [HOST, "api.example.com.evil.test", "other.example.com", "plain.test", "second.test"];
const SANDBOX: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 200, 0, 2));

#[derive(Clone, Default)]
struct Lines(Arc<(Mutex<Vec<u8>>, Notify)>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 .0.lock().unwrap().extend_from_slice(bytes);
        self.0 .1.notify_one();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
pub type Handler = Arc<dyn Fn(Request<Incoming>) -> Answering + Send + Sync>;

pub fn handler<F>(answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Handler
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    Arc::new(move |request| Box::pin(answer(request)))
}

/// Tells what came: the head as text, an empty line, the body.
pub fn echo() -> Handler {
    handler(|request| async move {
        let (head, body) = request.into_parts();
        let mut text = format!("{} {} {:?}\n", head.method, head.uri, head.version).into_bytes();
        for (name, value) in &head.headers {
            text.extend_from_slice(format!("{name}: ").as_bytes());
            text.extend_from_slice(value.as_bytes());
            text.push(b'\n');
        }
        text.push(b'\n');
        text.extend_from_slice(&body.collect().await.map(|body| body.to_bytes()).unwrap_or_default());
        let status = head.uri.query().and_then(|query| query.strip_prefix("status=")?.parse().ok()).unwrap_or(200);
        let mut response = Response::new(body::full(text.into()));
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
        response
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    Plain,
    Tls(&'static [&'static [u8]]),
}

pub const BOTH: Speaks = Speaks::Tls(&[b"h2", b"http/1.1"]);
pub const ONLY_H1: Speaks = Speaks::Tls(&[b"http/1.1"]);

pub struct World {
    egress: Arc<Egress>,
    lines: Lines,
    certificate: String,
    authority: Value,
    upstream: Authority,
    hosts: Mutex<Vec<tokio::task::JoinHandle<()>>>,
}

pub fn secret() -> Value {
    json!({ "name": "TOKEN", "placeholders": [PLACEHOLDER], "value": VALUE, "hosts": [HOST], "in": ["header", "basic", "body", "query", "path"] })
}

pub fn all() -> Value {
    json!([{ "source": "creation", "mode": "all" }])
}

impl World {
    pub async fn new(layers: Value, secrets: Value) -> World {
        let (upstream_certificate, upstream_key) = authority::new().unwrap();
        let (certificate, key) = authority::new().unwrap();
        let nowhere = "127.0.0.1:1";
        let start: Start = serde_json::from_value(json!({
            "listen": nowhere, "dns": nowhere, "explicit": nowhere, "resolvers": [], "roots": upstream_certificate, "denied": [], "private": ["127.0.0.0/8"],
        }))
        .unwrap();
        let lines = Lines::default();
        let egress = Arc::new(Egress::new(start, Output::start(lines.clone())).unwrap());
        let authority = json!({ "certificate": certificate, "key": *key });
        let upstream = Authority::read(&upstream_certificate, &upstream_key).unwrap();
        let world = World { egress, lines, certificate, authority, upstream, hosts: Mutex::default() };
        world.put(layers, secrets);
        world
    }

    /// A first layer names the hosts of the tests: only such a rule opens loopback.
    pub fn put(&self, layers: Value, secrets: Value) {
        let allow: Vec<Value> = NAMES.iter().map(|name| json!({ "id": "image.allow[0]", "host": name })).collect();
        let mut all = vec![json!({ "source": "image", "mode": "all", "allow": allow })];
        all.extend(layers.as_array().unwrap().iter().cloned());
        let layers = all;
        let plan: Plan =
            serde_json::from_value(json!({ "layers": layers, "secrets": secrets, "authority": self.authority }))
                .unwrap();
        let plan = CompiledPlan::compile(plan).unwrap();
        self.egress.sandboxes.put("sb-1", SANDBOX, plan, &self.egress.limits);
        let sandbox = self.egress.sandboxes.at(SANDBOX).unwrap();
        for name in NAMES {
            sandbox.pins().add(name, &[Ipv4Addr::LOCALHOST], Duration::from_secs(3600), Instant::now());
        }
    }

    pub fn connection(&self, port: u16) -> Connection {
        let sandbox = self.egress.sandboxes.at(SANDBOX).unwrap();
        Connection::open(&self.egress, &sandbox, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)).unwrap()
    }

    /// A host of this name, and its port.
    pub async fn host(&self, name: &str, speaks: Speaks, handler: Handler) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = match speaks {
            Speaks::Plain => None,
            Speaks::Tls(protocols) => {
                let mut config = tls::server_config(&self.upstream, name).unwrap();
                config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
                Some(Arc::new(config))
            }
        };
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (config, handler) = (config.clone(), handler.clone());
                tokio::spawn(async move {
                    match config {
                        None => answer_h1(stream, handler).await,
                        Some(config) => {
                            let Ok(stream) = tokio_rustls::TlsAcceptor::from(config).accept(stream).await else {
                                return;
                            };
                            if tls::speaks_h2(stream.get_ref().1.alpn_protocol()) {
                                let service = service_fn(move |request| {
                                    let answer = handler(request);
                                    async move { Ok::<_, std::io::Error>(answer.await) }
                                });
                                let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                                    .serve_connection(TokioIo::new(stream), service)
                                    .await;
                            } else {
                                answer_h1(stream, handler).await;
                            }
                        }
                    }
                });
            }
        });
        self.hosts.lock().unwrap().push(task);
        port
    }

    /// A TLS connection of the sandbox to this host, which says `sni`.
    pub async fn tls_as(
        &self,
        host: &str,
        sni: &str,
        port: u16,
        h2: bool,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let (client, server) = pair().await;
        tokio::spawn(serve_tls(self.connection(port), host.to_owned(), server));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(rustls_pemfile::certs(&mut self.certificate.as_bytes()).next().unwrap().unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls::connect(client, sni, &config, h2).await
    }

    pub async fn tls(&self, host: &str, port: u16, h2: bool) -> tokio_rustls::client::TlsStream<TcpStream> {
        self.tls_as(host, host, port, h2).await.unwrap()
    }

    pub async fn plain(&self, port: u16, explicit: bool) -> TcpStream {
        let (client, server) = pair().await;
        tokio::spawn(serve_plain(self.connection(port), None, server, explicit));
        client
    }

    /// A client of HTTP/1.1 over TLS.
    pub async fn h1(&self, host: &str, port: u16) -> http1::SendRequest<Body> {
        h1_over(self.tls(host, port, false).await).await
    }

    pub async fn h2(&self, host: &str, port: u16) -> http2::SendRequest<Body> {
        let stream = self.tls(host, port, true).await;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(1 << 20)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        sender
    }

    /// The entries so far, when there are at least so many.
    pub async fn entries(&self, count: usize) -> Vec<Value> {
        loop {
            let told = self.lines.0 .1.notified();
            {
                let text = self.lines.0 .0.lock().unwrap();
                let list: Vec<Value> =
                    text.split(|&b| b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
                let list: Vec<Value> = list.into_iter().filter(|line: &Value| line["op"] == "entry").collect();
                if list.len() >= count {
                    return list;
                }
            }
            told.await;
        }
    }

    pub fn output(&self) -> String {
        String::from_utf8(self.lines.0 .0.lock().unwrap().clone()).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.hosts.lock().unwrap().iter().for_each(|task| task.abort());
    }
}

async fn answer_h1<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, handler: Handler) {
    let service = service_fn(move |request| {
        let answer = handler(request);
        async move { Ok::<_, std::io::Error>(answer.await) }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

pub async fn h1_over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> http1::SendRequest<Body> {
    let (sender, connection) = http1::Builder::new().handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, server) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let (client, server) = (client.unwrap(), server.unwrap().0);
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    (client, server)
}

pub fn get(path: &str) -> http::request::Builder {
    Request::builder().uri(path).header("host", HOST)
}

pub fn post(path: &str, kind: &str) -> http::request::Builder {
    get(path).method("POST").header("content-type", kind)
}

/// A body without a told length, in these chunks.
pub fn streamed(list: Vec<Bytes>) -> Body {
    body::tests::chunks(list.iter().map(|chunk| chunk.to_vec()).collect(), None)
}

pub async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

pub fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().take_while(|line| !line.is_empty()).find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// A body that is fed by hand.
struct Fed(mpsc::Receiver<Frame<Bytes>>);

impl http_body::Body for Fed {
    type Data = Bytes;
    type Error = std::io::Error;
    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

pub fn fed() -> (mpsc::Sender<Frame<Bytes>>, body::Body) {
    let (feed, frames) = mpsc::channel(1);
    (feed, Fed(frames).boxed_unsync())
}
