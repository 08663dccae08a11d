use super::*;
use crate::search::tests::Random;
use http::Request;

fn plan(secrets: serde_json::Value) -> Plan {
    serde_json::from_value(
        serde_json::json!({ "layers": [], "secrets": secrets, "authority": null, "connections_max": null }),
    )
    .unwrap()
}

fn one(value: &str) -> HostSecrets {
    let places = ["header", "basic", "body", "query", "path"];
    let plan = plan(serde_json::json!([
        { "name": "TOKEN", "placeholders": ["osb_sealed_11"], "value": value, "hosts": ["api.example.com"], "in": places },
        { "name": "LONGER", "placeholders": ["osb_sealed_112"], "value": "second", "hosts": ["*.example.com"], "in": ["header"] },
    ]));
    HostSecrets::new(&plan, "api.example.com")
}

fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

#[test]
fn a_pattern_covers_what_it_says_and_no_look_alike() {
    for (pattern, host, covered) in [
        ("api.example.com", "api.example.com", true),
        ("api.example.com", "xapi.example.com", false),
        ("api.example.com", "api.example.com.evil.org", false),
        ("*.example.com", "a.b.example.com", true),
        ("*.example.com", "example.com", false),
        ("*.example.com", "evilexample.com", false),
        ("*.example.com", ".example.com", false),
        ("*", "anything", true),
        ("*example.com", "a.example.com", false),
    ] {
        assert_eq!(name::matches(pattern, host), covered, "{pattern} {host}");
    }
}

#[test]
fn headers_cookies_query_and_path_get_the_value_as_each_needs_it() {
    let secrets = one("a b/&=é");
    let mut used = Used::default();
    let mut head = parts(
        "/v1/osb_sealed_11/x?key=osb_sealed_11&b=1",
        &[
            ("authorization", "Bearer osb_sealed_112"),
            ("cookie", "a=1; t=osb_sealed_11; b=2"),
            ("host", "osb_sealed_11"),
        ],
    );
    secrets.head(&mut head, &mut used).unwrap();
    assert_eq!(head.uri, "/v1/a%20b%2F%26%3D%C3%A9/x?key=a%20b%2F%26%3D%C3%A9&b=1");
    assert_eq!(head.headers["authorization"], "Bearer second");
    assert_eq!(head.headers["cookie"].as_bytes(), "a=1; t=a b/&=é; b=2".as_bytes());
    assert_eq!(head.headers["host"], "osb_sealed_11");
    assert_eq!(used.secrets().map(|index| secrets.name(index)).collect::<Vec<_>>(), ["TOKEN", "LONGER"]);
}

#[test]
fn basic_credentials_are_decoded_replaced_and_encoded_again() {
    let secrets = one("s3cret");
    for (written, sent) in
        [("user:osb_sealed_11", "user:s3cret"), ("osb_sealed_11:x-oauth-basic", "s3cret:x-oauth-basic")]
    {
        for scheme in ["Basic", "basic"] {
            let mut used = Used::default();
            let value = format!("{scheme} {}", *encoding::base64(written.as_bytes()));
            let mut head = parts("/", &[("authorization", &value)]);
            secrets.head(&mut head, &mut used).unwrap();
            assert_eq!(head.headers["authorization"], format!("{scheme} {}", *encoding::base64(sent.as_bytes())));
            assert_eq!(used.secrets().count(), 1);
        }
    }
    let mut head = parts("/", &[("authorization", "Basic !!!")]);
    secrets.head(&mut head, &mut Used::default()).unwrap();
    assert_eq!(head.headers["authorization"], "Basic !!!");
}

#[test]
fn a_value_that_a_header_cannot_carry_is_refused_and_not_injected() {
    let secrets = one("line\r\nX-Injected: 1");
    let mut head = parts("/", &[("x-key", "osb_sealed_11")]);
    assert_eq!(secrets.head(&mut head, &mut Used::default()), Err(Fault::Header(HeaderName::from_static("x-key"))));
    let mut head = parts("/?k=osb_sealed_11", &[]);
    secrets.head(&mut head, &mut Used::default()).unwrap();
    assert_eq!(head.uri, "/?k=line%0D%0AX-Injected%3A%201");
}

#[test]
fn nothing_is_replaced_for_another_host() {
    let places = ["header", "basic", "body", "query", "path"];
    let plan = plan(serde_json::json!([
        { "name": "TOKEN", "placeholders": ["osb_sealed_11"], "value": "v", "hosts": ["api.example.com"], "in": places },
    ]));
    for host in ["api.example.com.evil.org", "example.com", "xapi.example.com"] {
        assert!(HostSecrets::new(&plan, host).is_empty());
    }
}

#[test]
fn a_secret_is_replaced_only_in_its_places() {
    let plan = plan(serde_json::json!([
        { "name": "TOKEN", "placeholders": ["osb_sealed_11"], "value": "v", "hosts": ["*"], "in": ["query"] },
    ]));
    let secrets = HostSecrets::new(&plan, "any.example");
    let basic = format!("Basic {}", *encoding::base64(b"u:osb_sealed_11"));
    let mut head = parts("/osb_sealed_11?a=osb_sealed_11", &[("x", "osb_sealed_11"), ("authorization", &basic)]);
    secrets.head(&mut head, &mut Used::default()).unwrap();
    assert_eq!(head.uri, "/osb_sealed_11?a=v");
    assert_eq!(head.headers["x"], "osb_sealed_11");
    assert_eq!(head.headers["authorization"], basic);
    assert!(secrets.stream(Context::Json).is_none());
}

#[test]
fn bodies_get_the_value_as_their_type_needs_it_at_any_border() {
    let value = "q\"uote\\ & é\n";
    let secrets = one(value);
    let body = format!("{{\"a\":\"osb_sealed_11\",\"b\":\"{}osb_sealed_11\"}}", "x".repeat(100));
    let mut random = Random(77);
    for context in [Context::Json, Context::Form, Context::Text] {
        let expected = body.replace("osb_sealed_11", std::str::from_utf8(&context.encode(value)).unwrap());
        for _ in 0..200 {
            let mut stream = secrets.stream(context).unwrap();
            let (mut out, mut at) = (Vec::new(), 0);
            while at < body.len() {
                let end = (at + 1 + random.below(30)).min(body.len());
                stream.push(bytes::Bytes::copy_from_slice(&body.as_bytes()[at..end]));
                while let Some(put) = stream.pull() {
                    out.extend_from_slice(&put);
                }
                at = end;
            }
            stream.finish();
            while let Some(put) = stream.pull() {
                out.extend_from_slice(&put);
            }
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}

#[test]
fn only_text_that_is_not_compressed_is_read() {
    let of = |kind: &str| Context::of_body(&parts("/", &[("content-type", kind)]).headers);
    assert_eq!(of("application/json; charset=utf-8"), Some(Context::Json));
    assert_eq!(of("application/vnd.api+JSON"), Some(Context::Json));
    assert_eq!(of("application/x-www-form-urlencoded"), Some(Context::Form));
    assert_eq!(of("text/plain"), Some(Context::Text));
    assert_eq!(of("multipart/form-data; boundary=x"), Some(Context::Text));
    assert_eq!(of("application/octet-stream"), None);
    assert_eq!(of("application/grpc"), None);
    assert_eq!(Context::of_body(&HeaderMap::new()), Some(Context::Text));
    let compressed = parts("/", &[("content-type", "application/json"), ("content-encoding", "gzip")]).headers;
    assert_eq!(Context::of_body(&compressed), None);
}
