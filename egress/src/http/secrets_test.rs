use super::body;
use super::fixture::*;
use crate::encoding;
use bytes::Bytes;
use http::{Request, Response};
use serde_json::json;
use std::io::Write;

fn basic(text: &str) -> String {
    format!("Basic {}", *encoding::base64(text.as_bytes()))
}

/// A host that compares what it gets, and answers with what it was told to.
fn checking(check: impl Fn(&http::request::Parts, &[u8]) -> bool + Send + Sync + 'static) -> Handler {
    let check = std::sync::Arc::new(check);
    handler(move |request| {
        let check = check.clone();
        async move {
            use http_body_util::BodyExt;
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let status = if check(&head, &body) { 200 } else { 418 };
            Response::builder().status(status).body(body::empty()).unwrap()
        }
    })
}

#[tokio::test]
async fn a_value_goes_out_and_its_echo_comes_back_as_the_placeholder() {
    let world = World::new(all(), json!([secret()])).await;
    for speaks in [BOTH, ONLY_H1] {
        let port = world.host(HOST, speaks, echo()).await;
        let json = serde_json::to_string(&json!({ "a": PLACEHOLDER })).unwrap();
        for h2 in [false, true] {
            let uri = format!("/p/{PLACEHOLDER}?k={PLACEHOLDER}");
            let uri = if h2 { format!("https://{HOST}{uri}") } else { uri };
            let mut request = Request::post(uri)
                .header("authorization", format!("Bearer {PLACEHOLDER}"))
                .header("x-basic", basic(&format!("user:{PLACEHOLDER}")))
                .header("cookie", format!("t={PLACEHOLDER}"))
                .header("accept-encoding", "gzip, br")
                .header("content-type", "application/json");
            if !h2 {
                request = request.header("host", HOST);
            }
            let request = request.body(body::full(json.clone().into())).unwrap();
            let response = if h2 {
                world.h2(HOST, port).await.send_request(request).await.unwrap()
            } else {
                world.h1(HOST, port).await.send_request(request).await.unwrap()
            };
            assert!(!response.headers().contains_key("content-length"));
            let told = text(response).await;
            assert!(told.contains(&format!("/p/{PLACEHOLDER}?k={PLACEHOLDER}")), "{told}");
            assert_eq!(line(&told, "authorization"), Some(format!("Bearer {PLACEHOLDER}").as_str()));
            assert_eq!(line(&told, "x-basic"), Some(basic(&format!("user:{PLACEHOLDER}")).as_str()));
            assert_eq!(line(&told, "cookie"), Some(format!("t={PLACEHOLDER}").as_str()));
            assert_eq!(line(&told, "accept-encoding"), Some("identity"));
            let length = json.len() - PLACEHOLDER.len() + VALUE.len();
            assert_eq!(line(&told, "content-length"), Some(length.to_string().as_str()));
            assert!(told.ends_with(&format!("\n\n{json}")), "{told}");
        }
    }
    let entries = world.entries(4).await;
    assert_eq!(entries[0]["secrets"], json!(["TOKEN"]));
    assert_eq!(entries[0]["path"], format!("/p/{PLACEHOLDER}"));
    assert!(!world.output().contains(VALUE) && !world.output().contains(&*encoding::base64(VALUE.as_bytes())));
}

#[tokio::test]
async fn the_host_gets_the_value() {
    let world = World::new(all(), json!([secret()])).await;
    let port = world
        .host(
            HOST,
            BOTH,
            checking(|head, body| {
                head.headers["authorization"] == format!("Bearer {VALUE}")
                    && head.headers["x-basic"] == basic(&format!("user:{VALUE}"))
                    && head.uri.path() == "/p/s3cret%2Fval%2Bue"
                    && head.uri.query() == Some("k=s3cret%2Fval%2Bue&b")
                    && body == b"a=s3cret%2Fval%2Bue&b=1"
                    && head.headers["content-length"] == body.len().to_string()
            }),
        )
        .await;
    let request = post(&format!("/p/{PLACEHOLDER}?k={PLACEHOLDER}&b"), "application/x-www-form-urlencoded")
        .header("authorization", format!("Bearer {PLACEHOLDER}"))
        .header("x-basic", basic(&format!("user:{PLACEHOLDER}")))
        .body(body::full(format!("a={PLACEHOLDER}&b=1").into()))
        .unwrap();
    assert_eq!(world.h1(HOST, port).await.send_request(request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_body_without_a_length_gets_the_value_across_its_chunks() {
    let world = World::new(all(), json!([secret()])).await;
    for speaks in [BOTH, ONLY_H1] {
        let expected = format!("{}{VALUE}{}", "x".repeat(100_000), "y".repeat(100_000));
        let port = world.host(HOST, speaks, checking(move |_, body| body == expected.as_bytes())).await;
        for cut in 1..PLACEHOLDER.len() {
            let chunks = [
                "x".repeat(100_000),
                PLACEHOLDER[..cut].to_owned(),
                PLACEHOLDER[cut..].to_owned(),
                "y".repeat(100_000),
            ];
            let request =
                post("/", "text/plain").body(streamed(chunks.into_iter().map(Bytes::from).collect())).unwrap();
            assert_eq!(world.h1(HOST, port).await.send_request(request).await.unwrap().status(), 200);
        }
    }
}

#[tokio::test]
async fn a_long_body_keeps_its_length_unless_it_needs_another() {
    let world = World::new(all(), json!([secret()])).await;
    let long = "x".repeat(3 << 20);
    let length = long.len();
    let port = world
        .host(
            HOST,
            ONLY_H1,
            checking(move |head, body| match head.uri.path() {
                "/kept" => head.headers["content-length"] == length.to_string() && body.len() == length,
                _ => !head.headers.contains_key("content-length") && body.len() == length + VALUE.len(),
            }),
        )
        .await;
    let send = |path: &'static str, text: String| {
        let request = post(path, "text/plain").body(body::full(text.into())).unwrap();
        async { world.h1(HOST, port).await.send_request(request).await.unwrap().status().as_u16() }
    };
    assert_eq!(send("/kept", long.clone()).await, 200);
    assert_eq!(send("/changed", format!("{PLACEHOLDER}{long}")).await, 200);
    assert_eq!(send("/late", format!("{long}{PLACEHOLDER}")).await, 502);
}

#[tokio::test]
async fn what_is_not_text_goes_out_as_it_is() {
    let world = World::new(all(), json!([secret()])).await;
    let port = world.host(HOST, BOTH, checking(|_, body| body == PLACEHOLDER.as_bytes())).await;
    for (kind, encoding) in
        [("application/octet-stream", None), ("image/png", None), ("application/json", Some("gzip"))]
    {
        let mut request = post("/", kind);
        if let Some(encoding) = encoding {
            request = request.header("content-encoding", encoding);
        }
        let request = request.body(body::full(PLACEHOLDER.into())).unwrap();
        assert_eq!(world.h1(HOST, port).await.send_request(request).await.unwrap().status(), 200, "{kind}");
    }
}

#[tokio::test]
async fn a_look_alike_host_gets_the_placeholder_as_text() {
    let world = World::new(all(), json!([secret()])).await;
    for host in ["api.example.com.evil.test", "other.example.com"] {
        let port = world.host(host, BOTH, echo()).await;
        let request =
            Request::get(format!("/?k={PLACEHOLDER}")).header("host", host).header("authorization", PLACEHOLDER);
        let response = world.h1(host, port).await.send_request(request.body(body::empty()).unwrap()).await.unwrap();
        let told = text(response).await;
        assert!(told.starts_with(&format!("GET /?k={PLACEHOLDER} ")), "{told}");
        assert_eq!(line(&told, "authorization"), Some(PLACEHOLDER));
    }
    let entries = world.entries(2).await;
    assert!(entries.iter().all(|entry| entry.get("secrets").is_none()));
}

#[tokio::test]
async fn a_redirect_is_passed_back_masked_and_not_followed() {
    let world = World::new(all(), json!([secret()])).await;
    let port = world
        .host(
            HOST,
            BOTH,
            handler(|request| async move {
                let value = request.headers()["x-key"].to_str().unwrap();
                let encoded = String::from_utf8(encoding::percent(value).to_vec()).unwrap();
                let location = format!("https://evil.test/?stolen={encoded}&raw={value}");
                Response::builder()
                    .status(302)
                    .header("location", location)
                    .header("x-echo", value)
                    .body(body::full(value.to_owned().into()))
                    .unwrap()
            }),
        )
        .await;
    let request = get("/").header("x-key", PLACEHOLDER).body(body::empty()).unwrap();
    let response = world.h1(HOST, port).await.send_request(request).await.unwrap();
    assert_eq!(response.status(), 302);
    assert_eq!(response.headers()["location"], format!("https://evil.test/?stolen={PLACEHOLDER}&raw={PLACEHOLDER}"));
    assert_eq!(response.headers()["x-echo"], PLACEHOLDER);
    assert_eq!(text(response).await, PLACEHOLDER);
}

#[tokio::test]
async fn a_value_that_went_out_once_is_masked_on_later_connections_too() {
    let world = World::new(all(), json!([secret()])).await;
    let port = world
        .host(HOST, BOTH, handler(|_| async { Response::new(body::full(format!("stored: {VALUE}").into())) }))
        .await;
    let ask = |token: &'static str| {
        let request = get("/").header("x-key", token).body(body::empty()).unwrap();
        async { text(world.h1(HOST, port).await.send_request(request).await.unwrap()).await }
    };
    assert_eq!(ask(PLACEHOLDER).await, format!("stored: {PLACEHOLDER}"));
    assert_eq!(ask("none").await, format!("stored: {PLACEHOLDER}"));
}

#[tokio::test]
async fn a_compressed_response_is_read_or_refused() {
    let world = World::new(all(), json!([secret()])).await;
    let port = world
        .host(
            HOST,
            BOTH,
            handler(|request| async move {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(format!("{{\"echo\":\"{VALUE}\"}}").as_bytes()).unwrap();
                let encoding = request.uri().path()[1..].to_owned();
                Response::builder()
                    .header("content-encoding", encoding)
                    .body(body::full(encoder.finish().unwrap().into()))
                    .unwrap()
            }),
        )
        .await;
    let ask = |path: &'static str| {
        let request = get(path).header("x-key", PLACEHOLDER).body(body::empty()).unwrap();
        async { world.h1(HOST, port).await.send_request(request).await.unwrap() }
    };
    let response = ask("/gzip").await;
    assert!(!response.headers().contains_key("content-encoding"));
    assert_eq!(text(response).await, format!("{{\"echo\":\"{PLACEHOLDER}\"}}"));
    let response = ask("/br").await;
    assert_eq!(response.status(), 502);
    assert!(text(response).await.contains("compressed"));
}

#[tokio::test]
async fn a_value_that_no_header_carries_is_refused() {
    let mut secret = secret();
    secret["value"] = json!("one\r\nX-Injected: two");
    let world = World::new(all(), json!([secret])).await;
    let port = world.host(HOST, BOTH, echo()).await;
    let request = get("/").header("x-key", PLACEHOLDER).body(body::empty()).unwrap();
    let response = world.h1(HOST, port).await.send_request(request).await.unwrap();
    assert_eq!(response.status(), 400);
    let told = text(response).await;
    assert!(told.contains("x-key") && !told.contains("Injected"), "{told}");
}

#[tokio::test]
async fn an_edited_value_is_used_from_the_next_request_on_and_the_old_one_stays_masked() {
    let world = World::new(all(), json!([secret()])).await;
    let port = world
        .host(
            HOST,
            BOTH,
            handler(|request| async move {
                let value = request.headers()["x-key"].to_str().unwrap().to_owned();
                let edited = value == "the-new-value";
                Response::builder()
                    .status(if edited { 201 } else { 200 })
                    .body(body::full(format!("{VALUE} {value}").into()))
                    .unwrap()
            }),
        )
        .await;
    let mut client = world.h1(HOST, port).await;
    let request = || get("/").header("x-key", PLACEHOLDER).body(body::empty()).unwrap();
    let response = client.send_request(request()).await.unwrap();
    assert_eq!(response.status(), 200);
    text(response).await;
    let mut edited = secret();
    edited["value"] = json!("the-new-value");
    world.put(all(), json!([edited]));
    client.ready().await.unwrap();
    let response = client.send_request(request()).await.unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(text(response).await, format!("{PLACEHOLDER} {PLACEHOLDER}"));
}

#[tokio::test]
async fn a_signed_request_is_signed_anew() {
    let mut secret = secret();
    secret["sign"] =
        json!({ "type": "aws-sigv4", "access_key_placeholder": "AKIAPLACEHOLDER", "access_key": "AKIAREAL" });
    let world = World::new(all(), json!([secret])).await;
    let port = world.host(HOST, BOTH, echo()).await;
    let authorization = "AWS4-HMAC-SHA256 Credential=AKIAPLACEHOLDER/20240101/us-east-1/sqs/aws4_request, \
                         SignedHeaders=content-type;host;x-amz-date, Signature=00";
    let request = |kind: &str| {
        post("/", "application/json")
            .header("authorization", authorization)
            .header("x-amz-date", "20240101T000000Z")
            .header("x-amz-content-sha256", kind)
    };
    let mut client = world.h1(HOST, port).await;
    let response =
        client.send_request(request("UNSIGNED-PAYLOAD").body(body::full("{}".into())).unwrap()).await.unwrap();
    let told = text(response).await;
    let signed = line(&told, "authorization").unwrap();
    assert!(signed.contains("Credential=AKIAREAL/20240101/us-east-1/sqs/aws4_request"), "{signed}");
    assert!(!signed.ends_with("Signature=00"));
    client.ready().await.unwrap();
    let chunked = request("STREAMING-AWS4-HMAC-SHA256-PAYLOAD").body(body::full("{}".into())).unwrap();
    let response = client.send_request(chunked).await.unwrap();
    assert_eq!(response.status(), 400);
    assert!(text(response).await.contains("chunked signing"));
}
