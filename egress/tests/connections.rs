//! Connections through the built program.

mod process;

use process::{client_hello, query, read_head, read_rest, Egress, Reply, Server};
use serde_json::{json, Value};
use std::io::{Read, Write};
use std::net::TcpStream;

const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

fn list(allow: Value) -> Value {
    json!([{ "source": "creation", "mode": "list", "allow": allow }])
}

/// One whose sandbox may reach `good.test`, without a port.
fn started() -> Egress {
    let mut egress = Egress::start(json!({}));
    egress.put("one", "127.0.0.1", list(json!([{ "id": "good", "host": "good.test" }])));
    egress
}

fn read_exact(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// A tunnel of TLS that passes bytes.
fn tunnel(egress: &Egress, server: &Server, host: &str) -> (TcpStream, TcpStream) {
    let mut client = egress.connect(&format!("{host}:{}", server.port)).unwrap();
    let hello = client_hello(host);
    client.write_all(&hello).unwrap();
    let mut taken = server.take();
    assert_eq!(read_exact(&mut taken, hello.len()), hello);
    (client, taken)
}

#[test]
fn tls_to_an_allowed_host_is_passed_on_as_it_is() {
    let (mut egress, server) = (started(), Server::start());
    let (mut client, mut taken) = tunnel(&egress, &server, "good.test");
    taken.write_all(b"from the server").unwrap();
    assert_eq!(read_exact(&mut client, 15), b"from the server");
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_rest(&mut taken), b"");
    taken.write_all(b", still").unwrap();
    drop(taken);
    assert_eq!(read_rest(&mut client), b", still");
    let entry = egress.entry("allowed");
    let expected = json!({ "host": "good.test", "address": "127.0.0.1", "port": server.port, "rule": "good", "protocol": "tls",
        "sandbox": "one", "received": 22, "sent": client_hello("good.test").len() });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&entry[field], value, "{field}");
    }
}

#[test]
fn a_host_that_is_not_on_the_list_is_refused_with_403() {
    let mut egress = started();
    let refusal = egress.connect("bad.test:443").unwrap_err();
    assert!(refusal.starts_with("HTTP/1.1 403 "), "{refusal}");
    assert!(refusal.to_lowercase().contains("x-atoll-egress: denied"), "{refusal}");
    let entry = egress.entry("denied");
    assert_eq!((&entry["host"], &entry["status"]), (&json!("bad.test"), &json!(403)));
    assert_eq!(egress.resolver.asked("bad.test"), 0);
    for bad in ["127.0.0.1:443", "169.254.169.254:80", "localhost:80", "good.test.evil:443"] {
        assert!(egress.connect(bad).unwrap_err().starts_with("HTTP/1.1 403 "), "{bad}");
    }
    for bad in ["good.test", "good.test:0", "0x7f.1:80"] {
        assert!(egress.connect(bad).unwrap_err().starts_with("HTTP/1.1 400 "), "{bad}");
    }
}

#[test]
fn a_server_name_other_than_the_one_told_is_refused_by_an_alert() {
    let (mut egress, server) = (started(), Server::start());
    for name in ["other.test", "10.0.0.1"] {
        let mut client = egress.connect(&format!("good.test:{}", server.port)).unwrap();
        client.write_all(&client_hello(name)).unwrap();
        assert_eq!(read_rest(&mut client), ACCESS_DENIED);
        assert_eq!(egress.entry("denied")["protocol"], "tls");
    }
    assert!(server.has_none());
}

#[test]
fn a_changed_plan_cuts_what_it_refuses_and_keeps_the_rest() {
    let (mut egress, server) = (started(), Server::start());
    let rule = |name: &str| json!({ "id": name, "host": format!("{name}.test") });
    egress.put("one", "127.0.0.1", list(json!([rule("good"), rule("kept")])));
    let (mut cut, _server_of_cut) = tunnel(&egress, &server, "good.test");
    let (mut kept, mut server_of_kept) = tunnel(&egress, &server, "kept.test");
    egress.put("one", "127.0.0.1", list(json!([rule("kept")])));
    assert_eq!(read_rest(&mut cut), b"");
    assert_eq!(egress.entry("denied")["host"], "good.test");
    server_of_kept.write_all(b"alive").unwrap();
    assert_eq!(read_exact(&mut kept, 5), b"alive");
    // Where requests are to be judged from now on, a tunnel that hides them ends.
    let read = json!({ "id": "kept", "host": "kept.test", "methods": ["GET"] });
    egress.put("one", "127.0.0.1", list(json!([read])));
    assert_eq!(read_rest(&mut kept), b"");
}

#[test]
fn a_sandbox_that_is_dropped_or_not_known_reaches_nothing() {
    let (mut egress, server) = (started(), Server::start());
    let (mut open, _taken) = tunnel(&egress, &server, "good.test");
    assert_eq!(egress.ask(json!({ "op": "drop", "sandbox": "one" }))["op"], "ok");
    assert_eq!(read_rest(&mut open), b"");
    let mut stream = egress.dial();
    let _ = stream.write_all(b"CONNECT good.test:443 HTTP/1.1\r\n\r\n");
    assert_eq!(read_rest(&mut stream), b"");
}

#[test]
fn a_private_address_needs_a_rule_that_names_the_host() {
    let (mut egress, server) = (started(), Server::start());
    egress.put("one", "127.0.0.1", json!([{ "source": "creation", "mode": "all" }]));
    let mut client = egress.connect(&format!("good.test:{}", server.port)).unwrap();
    client.write_all(&client_hello("good.test")).unwrap();
    assert_eq!(read_rest(&mut client), ACCESS_DENIED);
    assert_eq!(egress.entry("denied")["host"], "good.test");
    assert!(egress.connect(&format!("127.0.0.1:{}", server.port)).unwrap_err().starts_with("HTTP/1.1 403 "));
    assert!(server.has_none());
    let named = json!([{ "source": "creation", "mode": "all", "allow": [{ "id": "a", "host": "good.test" }] }]);
    egress.put("one", "127.0.0.1", named);
    tunnel(&egress, &server, "good.test");
}

#[test]
fn a_protocol_without_a_name_needs_a_rule_with_its_port() {
    let (mut egress, server) = (started(), Server::start());
    let target = format!("good.test:{}", server.port);
    let mut client = egress.connect(&target).unwrap();
    client.write_all(b"SSH-2.0-client\r\n").unwrap();
    assert_eq!(read_rest(&mut client), b"");
    assert_eq!(egress.entry("denied")["protocol"], "tcp");
    assert!(server.has_none());
    let rule = json!({ "id": "ssh", "host": "good.test", "ports": [[server.port, server.port]] });
    egress.put("one", "127.0.0.1", list(json!([rule])));
    let mut client = egress.connect(&target).unwrap();
    client.write_all(b"SSH-2.0-client\r\n").unwrap();
    assert_eq!(read_exact(&mut server.take(), 16), b"SSH-2.0-client\r\n");
    // A server that speaks first is heard; what the client then begins is looked at.
    let mut client = egress.connect(&target).unwrap();
    let mut taken = server.take();
    taken.write_all(b"220 hello\r\n").unwrap();
    assert_eq!(read_exact(&mut client, 11), b"220 hello\r\n");
    client.write_all(b"\x01\x02 mail").unwrap();
    assert_eq!(read_exact(&mut taken, 7), b"\x01\x02 mail");
}

#[test]
fn a_silent_client_cannot_hide_a_server_name() {
    let (mut egress, server) = (started(), Server::start());
    let rule = json!({ "id": "any", "host": "good.test", "ports": [[server.port, server.port]] });
    egress.put("one", "127.0.0.1", list(json!([rule])));
    let target = format!("good.test:{}", server.port);
    let mut client = egress.connect(&target).unwrap();
    // The server is dialled because the client is silent; it says nothing.
    let mut first = server.take();
    client.write_all(&client_hello("other.test")).unwrap();
    assert_eq!(read_rest(&mut client), ACCESS_DENIED);
    assert_eq!(read_rest(&mut first), b"");
    let mut client = egress.connect(&target).unwrap();
    let _first = server.take();
    let hello = client_hello("good.test");
    client.write_all(&hello).unwrap();
    assert_eq!(read_exact(&mut server.take(), hello.len()), hello);
}

#[test]
fn names_are_answered_by_the_rules() {
    let own_names = json!({ "own_names": { "gateway.atoll.internal": "10.200.0.1" } });
    let mut egress = Egress::start(own_names);
    egress.put(
        "one",
        "127.0.0.1",
        list(json!([{ "id": "good", "host": "good.test" }, { "id": "none", "host": "none.invalid" }])),
    );
    let found = egress.resolve("GOOD.test", 1);
    assert_eq!((found.code, found.answers, found.last), (0, 1, [127, 0, 0, 1]));
    for kind in [28, 64, 65, 16] {
        let empty = egress.resolve("good.test", kind);
        assert_eq!((empty.code, empty.answers), (0, 0), "{kind}");
    }
    // On a busy machine it is asked again when its answer is late.
    let asked = egress.resolver.asked("good.test");
    assert!(asked >= 1);
    egress.resolve("good.test", 1);
    assert_eq!(egress.resolver.asked("good.test"), asked, "the answer is kept");
    for name in ["bad.test", "a.good.test", "localhost", "good.test.localhost", "1.0.0.127.in-addr.arpa"] {
        assert_eq!(egress.resolve(name, 1).code, 3, "{name}");
        assert_eq!(egress.resolver.asked(name), 0);
    }
    assert_eq!(egress.resolve("none.invalid", 1).code, 3);
    assert!(egress.resolver.asked("none.invalid") >= 1);
    assert_eq!(egress.resolve("gateway.atoll.internal", 1).last, [10, 200, 0, 1]);
    assert_eq!(egress.resolve("good.test", 255).code, 5);
    let entry = egress.report(|report| report["protocol"] == "dns");
    assert_eq!((&entry["decision"], &entry["host"]), (&json!("denied"), &json!("bad.test")));
    // Over TCP too, several questions in one connection.
    let mut stream = TcpStream::connect(egress.dns).unwrap();
    for (name, code) in [("good.test", 0), ("bad.test", 3)] {
        let message = query(name, 1);
        stream.write_all(&(message.len() as u16).to_be_bytes()).unwrap();
        stream.write_all(&message).unwrap();
        let length = read_exact(&mut stream, 2);
        let reply = read_exact(&mut stream, usize::from(length[0]) << 8 | usize::from(length[1]));
        assert_eq!(Reply::parse(&reply).code, code);
    }
}

#[test]
fn names_that_nobody_knows_are_bounded() {
    let mut egress = Egress::start(json!({ "limits": { "dns_names_burst": 5, "dns_names_per_second": 0 } }));
    egress.put("one", "127.0.0.1", list(json!([{ "id": "all", "host": "*.test" }])));
    let codes: Vec<u8> = (0..8).map(|number| egress.resolve(&format!("n{number}.test"), 1).code).collect();
    assert_eq!(codes, [0, 0, 0, 0, 0, 5, 5, 5]);
    // What is in the cache costs nothing.
    assert_eq!(egress.resolve("n0.test", 1).code, 0);
    assert_eq!(egress.entry("denied")["reason"], "too many different names");
}

#[test]
fn connections_of_one_sandbox_are_bounded() {
    let mut egress =
        Egress::start(json!({ "limits": { "connections_per_sandbox_max": 3, "entries_per_second_max": 0 } }));
    egress.put("one", "127.0.0.1", list(json!([{ "id": "good", "host": "good.test" }])));
    let open: Vec<TcpStream> = (0..3).map(|_| egress.connect("good.test:9").unwrap()).collect();
    for _ in 0..5 {
        assert_eq!(read_rest(&mut egress.dial()), b"");
    }
    // It says so once a second, in one report or in several.
    let mut count = 0;
    while count < 5 {
        let dropped = egress.report(|report| report["op"] == "entries_dropped");
        assert_eq!(dropped["sandbox"], "one");
        count += dropped["count"].as_u64().unwrap();
    }
    assert_eq!(count, 5);
    drop(open);
}

#[test]
fn the_operators_proxy_is_told_names() {
    let upstream = Server::start();
    let mut egress = Egress::start(json!({ "upstream": format!("http://u:p@127.0.0.1:{}", upstream.port) }));
    egress.put("one", "127.0.0.1", list(json!([{ "id": "good", "host": "good.test" }])));
    let mut client = egress.connect("good.test:443").unwrap();
    let hello = client_hello("good.test");
    client.write_all(&hello).unwrap();
    let mut taken = upstream.take();
    let head = read_head(&mut taken);
    assert!(head.starts_with("CONNECT good.test:443 HTTP/1.1\r\n") && head.contains("Basic dTpw\r\n"), "{head}");
    taken.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    assert_eq!(read_exact(&mut taken, hello.len()), hello);
    assert!(egress.connect("bad.test:443").is_err());
    assert!(upstream.has_none());
}

#[test]
fn a_frame_with_a_fault_changes_nothing_and_is_not_shown() {
    let (mut egress, server) = (started(), Server::start());
    let secret = json!([{ "name": "T", "placeholders": ["p"], "value": "very-secret", "hosts": ["not a host"], "in": ["header"] }]);
    let plan = json!({ "layers": [], "secrets": secret });
    let answer = egress.ask(json!({ "op": "put", "sandbox": "one", "address": "127.0.0.1", "plan": plan }));
    assert_eq!(answer["op"], "error");
    let plan = json!({ "layers": [], "secrets": "very-secret" });
    assert_eq!(
        egress.ask(json!({ "op": "put", "sandbox": "one", "address": "127.0.0.1", "plan": plan }))["op"],
        "error"
    );
    egress.send_line("{\"op\":\"put\",\"value\":\"very-secret\"");
    assert_eq!(egress.report(|report| report["op"] == "trouble")["op"], "trouble");
    assert_eq!(egress.ask(json!({ "op": "dance" }))["op"], "error");
    assert!(!egress.said.iter().any(|line| line.contains("very-secret")), "{:?}", egress.said);
    tunnel(&egress, &server, "good.test");
}

#[test]
fn the_program_ends_with_its_input() {
    let (egress, server) = (started(), Server::start());
    let (mut client, _taken) = tunnel(&egress, &server, "good.test");
    assert_eq!(egress.end(), Some(0));
    assert_eq!(read_rest(&mut client), b"");
}
