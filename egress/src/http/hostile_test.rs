//! Requests of a hostile sandbox: refused, and told.

use super::body;
use super::fixture::*;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn a_refused_request_is_told_and_the_connection_lives_on() {
    let layers = json!([{ "source": "creation", "mode": "list", "allow": [
        { "id": "creation.allow[0]", "host": HOST, "methods": ["GET"], "paths": ["/v1/*"] } ], "deny": [
        { "id": "creation.deny[0]", "host": HOST, "paths": ["/v1/admin*"] } ] }]);
    let world = World::new(layers, json!([])).await;
    let port = world.host(HOST, BOTH, echo()).await;
    let mut client = world.h1(HOST, port).await;
    for (path, rule) in [
        ("/v1/admin/x?a", json!("creation.deny[0]")),
        ("/v1/%61dmin", json!("creation.deny[0]")),
        ("/v1/../v2", json!(null)),
        ("/v2", json!(null)),
    ] {
        client.ready().await.unwrap();
        let response = client.send_request(get(path).body(body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 403);
        assert_eq!(response.headers()["x-atoll-egress"], "denied");
        assert_eq!(response.headers()["content-type"], "application/json");
        let told: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(told["rule"], rule, "{path}");
        assert!(told["error"].as_str().unwrap().starts_with(&format!("egress to {HOST} is refused")));
    }
    client.ready().await.unwrap();
    let response = client.send_request(get("/v1/ok").body(body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    text(response).await;
    let entries = world.entries(5).await;
    assert_eq!(entries[0]["decision"], "denied");
    assert_eq!(entries[0]["path"], "/v1/admin/x");
    assert_eq!(entries[4]["decision"], "allowed");
    assert_eq!(entries[4]["rule"], "creation.allow[0]");
}

#[tokio::test]
async fn a_request_for_another_host_on_a_connection_is_misdirected() {
    let world = World::new(all(), json!([secret()])).await;
    let port = world.host(HOST, BOTH, echo()).await;
    let mut h1 = world.h1(HOST, port).await;
    for host in ["other.example.com", "api.example.com.evil.test", "api.example.com:1"] {
        h1.ready().await.unwrap();
        let request = Request::get("/").header("host", host).body(body::empty()).unwrap();
        assert_eq!(h1.send_request(request).await.unwrap().status(), 421, "{host}");
    }
    let mut h2 = world.h2(HOST, port).await;
    let other = Request::get("https://other.example.com/").body(body::empty()).unwrap();
    assert_eq!(h2.send_request(other).await.unwrap().status(), 421);
    let right =
        Request::get(format!("https://{HOST}/")).header("host", "other.example.com").body(body::empty()).unwrap();
    assert_eq!(h2.send_request(right).await.unwrap().status(), 421);
    // The name in the handshake is the connection's too.
    assert!(world.tls_as(HOST, "other.example.com", port, false).await.is_err());
    let entries = world.entries(6).await;
    assert_eq!(entries[5]["decision"], "failed");
}

#[tokio::test]
async fn methods_that_are_no_requests_are_refused() {
    let world = World::new(all(), json!([])).await;
    let port = world.host(HOST, BOTH, echo()).await;
    let mut client = world.h1(HOST, port).await;
    let request = get("/").method("TRACE").body(body::empty()).unwrap();
    assert_eq!(client.send_request(request).await.unwrap().status(), 405);
    let request =
        Request::builder().method("CONNECT").uri("other.test:443").header("host", "other.test:443").body(body::empty());
    client.ready().await.unwrap();
    assert_eq!(client.send_request(request.unwrap()).await.unwrap().status(), 405);
}

async fn raw(world: &World, port: u16, request: &str) -> String {
    let mut stream = world.tls(HOST, port, false).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn smuggled_requests_reach_no_host() {
    let world = World::new(all(), json!([])).await;
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let counting = handler(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Response::new(body::empty()) }
    });
    let port = world.host(HOST, BOTH, counting).await;
    let inner = "GET /admin HTTP/1.1\r\nHost: api.example.com\r\n\r\n";
    let list = [
        "POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 0\r\nContent-Length: 48\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: api.example.com\r\nX: 1\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\nHost: api.example.com\n\n",
        "GET / HTTP/1.1\r\nHost: api.example.com\r\nHost: evil.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: api.example.com\r\nX: a\rb\r\n\r\n",
    ];
    for request in list {
        let answer = raw(&world, port, &format!("{request}{inner}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?} {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1);
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
    let entries = world.entries(list.len()).await;
    assert!(entries.iter().all(|entry| entry["decision"] == "denied" && entry["reason"].is_string()));
}

#[tokio::test]
async fn hop_by_hop_headers_go_no_further() {
    let world = World::new(all(), json!([])).await;
    let port = world.host(HOST, BOTH, echo()).await;
    let request = "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close, X-Secret-Hop, Upgrade, HTTP2-Settings\r\nX-Secret-Hop: 1\r\n\
                   Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nProxy-Authorization: Basic eDp5\r\nKeep-Alive: 5\r\nTE: gzip, trailers\r\n\
                   X-Kept: 1\r\n\r\n";
    let answer = raw(&world, port, request).await.to_ascii_lowercase();
    assert!(answer.contains("\nte: trailers\n") && answer.contains("\nx-kept: 1\n"), "{answer}");
    for name in ["x-secret-hop", "upgrade:", "http2-settings", "proxy-authorization", "keep-alive", "\nconnection:"] {
        assert!(!answer.split("\r\n\r\n").nth(1).unwrap().contains(name), "{name} {answer}");
    }
}

#[tokio::test]
async fn a_host_that_is_not_what_it_says_is_not_reached() {
    let world = World::new(all(), json!([secret()])).await;
    let port = world.host("other.example.com", BOTH, echo()).await;
    let mut client = world.h1(HOST, port).await;
    let request = get("/").header("authorization", format!("Bearer {PLACEHOLDER}")).body(body::empty()).unwrap();
    let response = client.send_request(request).await.unwrap();
    assert_eq!(response.status(), 502);
    let told = text(response).await;
    assert!(told.contains("certificate"), "{told}");
    let entries = world.entries(1).await;
    assert_eq!(entries[0]["decision"], "failed");
    assert!(entries[0]["reason"].as_str().unwrap().contains("certificate"));
}

#[tokio::test]
async fn a_refused_upgrade_ends_the_connection() {
    let world = World::new(all(), json!([])).await;
    let port = world.host(HOST, BOTH, echo()).await;
    let smuggled = "GET /2 HTTP/1.1\r\nHost: api.example.com\r\n\r\n";
    let request = "GET /1 HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let answer = raw(&world, port, &format!("{request}{smuggled}")).await;
    assert!(answer.contains("GET /1 ") && !answer.contains("GET /2 "), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("connection: close"));
}

#[tokio::test]
async fn a_new_plan_ends_what_it_refuses_and_leaves_the_rest() {
    let rule = |path: &str| json!([{ "source": "creation", "mode": "all", "deny": [{ "id": "creation.deny[0]", "host": HOST, "paths": [path] }] }]);
    let world = World::new(rule("/none"), json!([])).await;
    let port = world
        .host(
            HOST,
            BOTH,
            handler(|_| async {
                let (feed, out) = fed();
                tokio::spawn(async move { while feed.send(Frame::data(Bytes::from("event\n"))).await.is_ok() {} });
                Response::new(out)
            }),
        )
        .await;
    let mut refused =
        world.h1(HOST, port).await.send_request(get("/a").body(body::empty()).unwrap()).await.unwrap().into_body();
    let mut kept =
        world.h1(HOST, port).await.send_request(get("/b").body(body::empty()).unwrap()).await.unwrap().into_body();
    assert!(refused.frame().await.unwrap().is_ok() && kept.frame().await.unwrap().is_ok());
    world.put(rule("/a"), json!([]));
    while let Some(Ok(_)) = refused.frame().await {}
    for _ in 0..100 {
        assert!(kept.frame().await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn what_follows_the_head_of_an_odd_upgrade_is_not_read_as_a_request() {
    let layers = json!([{ "source": "creation", "mode": "all", "deny": [{ "id": "creation.deny[0]", "host": HOST, "paths": ["/denied"] }] }]);
    let world = World::new(layers, json!([])).await;
    let port = world.host(HOST, BOTH, echo()).await;
    // A line that ends without a carriage return would be refused if it were read as HTTP.
    let smuggled = "GET /2 HTTP/1.1\nHost: api.example.com\n\n";
    for upgrade in ["Upgrade: websocket", "Upgrade: websocket\r\nUpgrade: h2c", "Upgrade: h2c\r\nUpgrade: foo"] {
        for path in ["/1", "/denied"] {
            let head =
                format!("GET {path} HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\n{upgrade}\r\n\r\n");
            let answer = raw(&world, port, &format!("{head}{smuggled}")).await;
            assert_eq!(answer.matches("HTTP/1.1 ").count() - answer.matches("GET /1 HTTP/1.1 ").count(), 1, "{answer}");
            assert!(!answer.contains("GET /2"), "{answer}");
        }
    }
}
