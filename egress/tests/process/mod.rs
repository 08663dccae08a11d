//! The built program with a control channel, a resolver and a server to reach, all on the loopback. Nothing translates destinations here, so that
//! the listener is the explicit proxy.

use serde_json::{json, Value};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A test that waits longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Egress {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Reports that came while an answer was awaited.
    reports: VecDeque<Value>,
    pub said: Vec<String>,
    seq: u64,
    pub proxy: SocketAddr,
    pub dns: SocketAddr,
    pub resolver: Resolver,
}

impl Egress {
    /// Starts it with what `more` adds to the frame `start`.
    pub fn start(more: Value) -> Egress {
        let mut child = Command::new(env!("CARGO_BIN_EXE_atoll-egress"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let output = child.stdout.take().unwrap();
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        let (resolver, any) = (Resolver::start(), SocketAddr::from(([127, 0, 0, 1], 0)));
        let (reports, said) = (VecDeque::new(), Vec::new());
        let mut egress = Egress { child, input, lines, reports, said, seq: 0, proxy: any, dns: any, resolver };
        // A port that is free now may be taken a moment later.
        let started = (0..10).any(|_| {
            (egress.proxy, egress.dns) = (free_port(), free_port());
            let mut frame = json!({
                "op": "start", "listen": egress.proxy, "explicit": egress.proxy, "dns": egress.dns,
                "resolvers": [egress.resolver.address], "roots": "", "denied": ["169.254.0.0/16"], "private": ["127.0.0.0/8"],
            });
            frame.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            egress.ask(frame)["op"] == "ok"
        });
        assert!(started, "no start: {:?}", egress.said);
        egress.report(|report| report["op"] == "ready");
        egress
    }

    /// Sends a frame and gives its answer.
    pub fn ask(&mut self, mut frame: Value) -> Value {
        self.seq += 1;
        frame["seq"] = self.seq.into();
        self.send_line(&frame.to_string());
        loop {
            let line = self.line();
            if line["seq"] == self.seq {
                return line;
            }
            self.reports.push_back(line);
        }
    }

    pub fn send_line(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The plan of a sandbox at an address.
    pub fn put(&mut self, sandbox: &str, address: &str, layers: Value) {
        let plan = json!({ "layers": layers });
        let answer = self.ask(json!({ "op": "put", "sandbox": sandbox, "address": address, "plan": plan }));
        assert_eq!(answer["op"], "ok", "{answer}");
    }

    /// The next report that `suits`; those before it are passed over.
    pub fn report(&mut self, suits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let report = self.reports.pop_front().unwrap_or_else(|| self.line());
            if suits(&report) {
                return report;
            }
        }
    }

    pub fn entry(&mut self, decision: &str) -> Value {
        self.report(|report| report["op"] == "entry" && report["decision"] == decision)
    }

    fn line(&mut self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("a line of the program");
        self.said.push(line.clone());
        serde_json::from_str(&line).expect("a line is JSON")
    }

    /// A connection from an address of this host.
    pub fn dial(&self) -> TcpStream {
        let stream = TcpStream::connect(self.proxy).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A tunnel to a host, or the refusal.
    pub fn connect(&self, target: &str) -> Result<TcpStream, String> {
        let mut stream = self.dial();
        write!(stream, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
        let head = read_head(&mut stream);
        if head.starts_with("HTTP/1.1 200 ") {
            return Ok(stream);
        }
        let mut body = String::new();
        let _ = stream.read_to_string(&mut body);
        Err(head + &body)
    }

    /// Asks the program's own DNS server over UDP.
    pub fn resolve(&self, name: &str, kind: u16) -> Reply {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(&query(name, kind), self.dns).unwrap();
        let mut buffer = [0; 2048];
        let length = socket.recv(&mut buffer).unwrap();
        Reply::parse(&buffer[..length])
    }

    /// Ends the input and gives the exit status.
    pub fn end(mut self) -> Option<i32> {
        self.input = None;
        self.child.wait().unwrap().code()
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The head of a response and not a byte more.
pub fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// All that comes until the end, a reset being one too.
pub fn read_rest(stream: &mut TcpStream) -> Vec<u8> {
    let (mut rest, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return rest,
            Ok(length) => rest.extend_from_slice(&chunk[..length]),
            Err(fault) if fault.kind() == std::io::ErrorKind::WouldBlock => panic!("no end came"),
            Err(_) => return rest,
        }
    }
}

/// A server that hands over the connections it takes.
pub struct Server {
    pub port: u16,
    taken: Receiver<TcpStream>,
}

impl Server {
    pub fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (send, taken) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                if send.send(stream).is_err() {
                    return;
                }
            }
        });
        Server { port, taken }
    }

    pub fn take(&self) -> TcpStream {
        self.taken.recv_timeout(PATIENCE).expect("a connection")
    }

    pub fn has_none(&self) -> bool {
        self.taken.try_recv().is_err()
    }
}

/// Answers `A` for all of `test` with 127.0.0.1, and keeps what it was asked.
pub struct Resolver {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Resolver {
    fn start() -> Resolver {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let list = asked.clone();
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                let question = &buffer[..length];
                let name = name_at(question, 12);
                let end = 12 + name.len() + 2 + 4;
                let kind = question[end - 3];
                let known = name.ends_with(".test");
                list.lock().unwrap().push(name);
                let (code, count) = (if known { 0 } else { 3 }, u8::from(known && kind == 1));
                let mut answer = question[..2].to_vec();
                answer.extend_from_slice(&[0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]);
                answer.extend_from_slice(&question[12..end]);
                if count == 1 {
                    answer.extend_from_slice(&[0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
                }
                let _ = socket.send_to(&answer, peer);
            }
        });
        Resolver { address, asked }
    }

    pub fn asked(&self, name: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == name).count()
    }
}

pub fn query(name: &str, kind: u16) -> Vec<u8> {
    let mut message = vec![0xAB, 0xCD, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    message
}

fn name_at(message: &[u8], mut at: usize) -> String {
    let mut labels = Vec::new();
    while message[at] != 0 {
        let length = usize::from(message[at]);
        labels.push(String::from_utf8_lossy(&message[at + 1..at + 1 + length]).into_owned());
        at += 1 + length;
    }
    labels.join(".")
}

#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub code: u8,
    pub answers: u8,
    /// The last four bytes: the address, where the answer is one.
    pub last: [u8; 4],
}

impl Reply {
    pub fn parse(message: &[u8]) -> Reply {
        assert_eq!(message[..2], [0xAB, 0xCD]);
        Reply { code: message[3] & 0xF, answers: message[7], last: message[message.len() - 4..].try_into().unwrap() }
    }
}

/// A ClientHello with a server name.
pub fn client_hello(name: &str) -> Vec<u8> {
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
