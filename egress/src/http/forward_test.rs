use super::body;
use super::fixture::*;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version};
use http_body::Frame;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

#[tokio::test]
async fn requests_of_each_version_reach_hosts_of_each_version() {
    let world = World::new(all(), json!([])).await;
    for (speaks, h2_version) in [(BOTH, "HTTP/2.0"), (ONLY_H1, "HTTP/1.1")] {
        let port = world.host(HOST, speaks, echo()).await;
        let mut h1 = world.h1(HOST, port).await;
        for number in 0..3 {
            h1.ready().await.unwrap();
            let request =
                post(&format!("/x?n={number}"), "application/octet-stream").body(body::full("payload".into())).unwrap();
            let response = h1.send_request(request).await.unwrap();
            assert_eq!(response.version(), Version::HTTP_11);
            let told = text(response).await;
            assert!(told.starts_with(&format!("POST /x?n={number} HTTP/1.1\n")), "{told}");
            assert!(told.ends_with("\n\npayload"));
            assert_eq!(line(&told, "host"), Some(format!("{HOST}:{port}").as_str()));
        }
        let mut h2 = world.h2(HOST, port).await;
        let asked = (0..20).map(|number| {
            let uri = format!("https://{HOST}:{port}/y?n={number}");
            h2.send_request(Request::post(uri).body(body::full("payload".into())).unwrap())
        });
        let asked: Vec<_> = asked.collect();
        for (number, response) in asked.into_iter().enumerate() {
            let told = text(response.await.unwrap()).await;
            assert!(told.contains(&format!("/y?n={number} {h2_version}\n")), "{told}");
            assert!(told.ends_with("\n\npayload"), "{told}");
        }
    }
    let entries = world.entries(46).await;
    assert_eq!(entries.iter().filter(|entry| entry["protocol"] == "h2").count(), 40);
    assert_eq!(entries[0]["path"], "/x");
    assert_eq!(entries[0]["status"], 200);
    assert_eq!(entries[0]["address"], "127.0.0.1");
    assert!(entries[0]["sent"].as_u64().unwrap() > 7 && entries[0]["received"].as_u64().unwrap() > 7);
}

#[tokio::test]
async fn responses_without_a_body_stay_so() {
    let world = World::new(all(), json!([secret()])).await;
    let bare = handler(|request| async move {
        let head = request.method() == "HEAD";
        let status = request.uri().path()[1..].parse::<u16>().unwrap();
        let mut response = Response::new(body::empty());
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
        if head {
            response.headers_mut().insert("content-length", "12345".parse().unwrap());
        }
        response
    });
    for speaks in [BOTH, ONLY_H1] {
        let port = world.host(HOST, speaks, bare.clone()).await;
        let mut h1 = world.h1(HOST, port).await;
        let mut h2 = world.h2(HOST, port).await;
        for (method, path) in [("HEAD", "/200"), ("GET", "/204"), ("GET", "/304"), ("GET", "/200"), ("POST", "/200")] {
            for with_secret in [false, true] {
                let token = if with_secret { PLACEHOLDER } else { "none" };
                let request = |uri: String| Request::builder().method(method).uri(uri).header("x-key", token);
                h1.ready().await.unwrap();
                let response = h1
                    .send_request(request(path.to_owned()).header("host", HOST).body(body::empty()).unwrap())
                    .await
                    .unwrap();
                assert_eq!(response.status().as_u16().to_string(), path[1..]);
                if method == "HEAD" {
                    assert_eq!(response.headers()["content-length"], "12345");
                }
                assert_eq!(text(response).await, "");
                let response = h2
                    .send_request(request(format!("https://{HOST}{path}")).body(body::empty()).unwrap())
                    .await
                    .unwrap();
                assert_eq!(response.status().as_u16().to_string(), path[1..]);
                assert_eq!(text(response).await, "");
            }
        }
    }
}

#[tokio::test]
async fn streams_flow_both_ways_with_trailers_at_their_end() {
    let world = World::new(all(), json!([])).await;
    // As gRPC does: answers each message, and ends with trailers.
    let port = world
        .host(
            HOST,
            BOTH,
            handler(|request| async move {
                let (feed, out) = fed();
                tokio::spawn(async move {
                    let mut body = request.into_body();
                    while let Some(Ok(frame)) = body.frame().await {
                        match frame.into_data() {
                            Ok(data) => feed.send(Frame::data(data)).await.unwrap(),
                            Err(frame) => {
                                let mut trailers = frame.into_trailers().unwrap();
                                trailers.insert("grpc-status", "0".parse().unwrap());
                                feed.send(Frame::trailers(trailers)).await.unwrap();
                            }
                        }
                    }
                });
                Response::builder().header("content-type", "application/grpc").body(out).unwrap()
            }),
        )
        .await;
    let mut client = world.h2(HOST, port).await;
    let (feed, out) = fed();
    let uri = format!("https://{HOST}/svc/Method");
    let request =
        Request::post(uri).header("te", "trailers").header("content-type", "application/grpc").body(out).unwrap();
    let mut response = client.send_request(request).await.unwrap().into_body();
    for number in 0..10 {
        let message = Bytes::from(format!("message {number}"));
        feed.send(Frame::data(message.clone())).await.unwrap();
        assert_eq!(response.frame().await.unwrap().unwrap().into_data().unwrap(), message);
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("x-mine", "1".parse().unwrap());
    feed.send(Frame::trailers(trailers)).await.unwrap();
    drop(feed);
    let trailers = response.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(trailers["x-mine"], "1");
}

#[tokio::test]
async fn events_are_passed_on_at_once_and_masked() {
    let world = World::new(all(), json!([secret()])).await;
    let (feeds, mut fed_to) = mpsc::channel(8);
    let port = world
        .host(
            HOST,
            BOTH,
            handler(move |_| {
                let feeds = feeds.clone();
                async move {
                    let (feed, out) = fed();
                    feeds.send(feed).await.unwrap();
                    Response::builder().header("content-type", "text/event-stream").body(out).unwrap()
                }
            }),
        )
        .await;
    let mut client = world.h1(HOST, port).await;
    for token in ["none", PLACEHOLDER] {
        client.ready().await.unwrap();
        let request = get("/events").header("authorization", token).body(body::empty()).unwrap();
        let mut response = client.send_request(request).await.unwrap().into_body();
        let feed = fed_to.recv().await.unwrap();
        for number in 0..5 {
            let event = format!("data: {number} s3cret\n\n");
            feed.send(Frame::data(event.clone().into())).await.unwrap();
            assert_eq!(response.frame().await.unwrap().unwrap().into_data().unwrap(), event);
        }
        if token == PLACEHOLDER {
            feed.send(Frame::data(Bytes::from("data: s3cret/va"))).await.unwrap();
            assert_eq!(response.frame().await.unwrap().unwrap().into_data().unwrap(), "data: ");
            feed.send(Frame::data(Bytes::from("l+ue\n\n"))).await.unwrap();
            assert_eq!(response.frame().await.unwrap().unwrap().into_data().unwrap(), format!("{PLACEHOLDER}\n\n"));
        }
        drop(feed);
        assert!(response.frame().await.is_none());
    }
}

#[tokio::test]
async fn an_upgrade_goes_through_and_is_counted() {
    let world = World::new(all(), json!([secret()])).await;
    let port = world
        .host(
            HOST,
            BOTH,
            handler(|mut request| async move {
                assert_eq!(request.headers()["upgrade"], "websocket");
                assert_eq!(request.headers()["x-key"], VALUE);
                let upgraded = hyper::upgrade::on(&mut request);
                tokio::spawn(async move {
                    let mut stream = hyper_util::rt::TokioIo::new(upgraded.await.unwrap());
                    let mut bytes = [0; 5];
                    while stream.read_exact(&mut bytes).await.is_ok() {
                        stream.write_all(&bytes).await.unwrap();
                    }
                });
                let response =
                    Response::builder().status(101).header("connection", "upgrade").header("upgrade", "websocket");
                response.header("x-echo", VALUE).body(body::empty()).unwrap()
            }),
        )
        .await;
    let mut client = world.h1(HOST, port).await;
    let request =
        get("/ws").header("connection", "Upgrade").header("upgrade", "websocket").header("x-key", PLACEHOLDER);
    let response = client.send_request(request.body(body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["x-echo"], PLACEHOLDER);
    let mut stream = hyper_util::rt::TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    for _ in 0..100 {
        stream.write_all(b"hello").await.unwrap();
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"hello");
    }
    stream.shutdown().await.unwrap();
    drop(stream);
    let entries = world.entries(1).await;
    assert_eq!(entries[0]["protocol"], "ws");
    assert_eq!(entries[0]["status"], 101);
    assert!(entries[0]["sent"].as_u64().unwrap() >= 500 && entries[0]["received"].as_u64().unwrap() >= 500);
}

#[tokio::test]
async fn long_bodies_go_both_ways() {
    let world = World::new(all(), json!([])).await;
    const LENGTH: usize = 64 << 20;
    let mirror = handler(|request| async move {
        let length = request.headers().get("content-length").cloned();
        let mut response = Response::new(request.into_body().map_err(std::io::Error::other).boxed_unsync());
        length.map(|length| response.headers_mut().insert("content-length", length));
        response
    });
    for (speaks, h2) in [(BOTH, false), (BOTH, true), (ONLY_H1, true)] {
        let port = world.host(HOST, speaks, mirror.clone()).await;
        let (feed, out) = fed();
        tokio::spawn(async move {
            for number in 0..LENGTH / 65536 {
                if feed.send(Frame::data(Bytes::from(vec![number as u8; 65536]))).await.is_err() {
                    return;
                }
            }
        });
        let request = Request::post(if h2 { format!("https://{HOST}/") } else { "/".to_owned() });
        let request = request.header("content-type", "application/octet-stream").header("content-length", LENGTH);
        let mut response = if h2 {
            world.h2(HOST, port).await.send_request(request.body(out).unwrap()).await.unwrap()
        } else {
            world.h1(HOST, port).await.send_request(request.header("host", HOST).body(out).unwrap()).await.unwrap()
        };
        assert_eq!(response.headers()["content-length"], LENGTH.to_string());
        let mut at = 0;
        while let Some(frame) = response.body_mut().frame().await {
            let mut data = frame.unwrap().into_data().unwrap();
            while !data.is_empty() {
                let part = data.split_to(data.len().min(65536 - at % 65536));
                assert!(part == vec![(at / 65536) as u8; part.len()]);
                at += part.len();
            }
        }
        assert_eq!(at, LENGTH);
    }
    let entries = world.entries(3).await;
    assert!(entries
        .iter()
        .all(|entry| entry["sent"].as_u64().unwrap() > LENGTH as u64
            && entry["received"].as_u64().unwrap() > LENGTH as u64));
}

#[tokio::test]
async fn expect_is_answered_before_the_body_comes() {
    let world = World::new(all(), json!([])).await;
    let port = world.host(HOST, BOTH, echo()).await;
    let mut stream = world.tls(HOST, port, false).await;
    let head = "POST / HTTP/1.1\r\nHost: api.example.com\r\nExpect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut told = [0; 25];
    stream.read_exact(&mut told).await.unwrap();
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").await.unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.ends_with("\n\nbody"), "{answer}");
}

#[tokio::test]
async fn a_host_that_closed_its_connection_is_connected_to_again() {
    let world = World::new(all(), json!([])).await;
    let closing =
        handler(|_| async { Response::builder().header("connection", "close").body(body::full("x".into())).unwrap() });
    let port = world.host(HOST, ONLY_H1, closing).await;
    let mut client = world.h1(HOST, port).await;
    for _ in 0..5 {
        client.ready().await.unwrap();
        let response = client.send_request(get("/").body(body::empty()).unwrap()).await.unwrap();
        assert_eq!(text(response).await, "x");
    }
}

#[tokio::test]
async fn in_the_clear_each_request_is_decided_by_its_host() {
    let layers = json!([{ "source": "creation", "mode": "list", "allow": [
        { "id": "creation.allow[0]", "host": "plain.test" }, { "id": "creation.allow[1]", "host": "second.test" } ] }]);
    let world = World::new(layers, json!([secret()])).await;
    let port = world.host("plain.test", Speaks::Plain, echo()).await;
    let mut client = h1_over(world.plain(port, false).await).await;
    for (host, status) in
        [("plain.test", 200), ("second.test", 200), (HOST, 403), ("plain.test:1", 421), ("127.0.0.1", 403)]
    {
        client.ready().await.unwrap();
        let request = Request::get("/").header("host", host).header("x-key", PLACEHOLDER).body(body::empty()).unwrap();
        let response = client.send_request(request).await.unwrap();
        assert_eq!(response.status(), status, "{host}");
        let told = text(response).await;
        if status == 200 {
            assert_eq!(line(&told, "x-key"), Some(PLACEHOLDER));
        }
    }
    let mut client = h1_over(world.plain(port, true).await).await;
    for (uri, host, status) in [
        (format!("http://plain.test:{port}/a"), "evil.test", 200),
        (format!("http://{HOST}:{port}/a"), "plain.test", 403),
        ("/a".to_owned(), "plain.test", 400),
        ("https://plain.test/a".to_owned(), "plain.test", 400),
    ] {
        client.ready().await.unwrap();
        let response =
            client.send_request(Request::get(&uri).header("host", host).body(body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), status, "{uri}");
        let told = text(response).await;
        if status == 200 {
            assert!(told.starts_with("GET /a HTTP/1.1\n"), "{told}");
            assert_eq!(line(&told, "host"), Some(format!("plain.test:{port}").as_str()));
        }
    }
}

#[tokio::test]
async fn cookies_in_several_fields_are_one_field_in_http1() {
    let world = World::new(all(), json!([secret()])).await;
    let port = world.host(HOST, ONLY_H1, echo()).await;
    let request =
        Request::get(format!("https://{HOST}/")).header("cookie", "a=1").header("cookie", format!("b={PLACEHOLDER}"));
    let response = world.h2(HOST, port).await.send_request(request.body(body::empty()).unwrap()).await.unwrap();
    assert_eq!(line(&text(response).await, "cookie"), Some(format!("a=1; b={PLACEHOLDER}").as_str()));
}
