//! Answers of the proxy itself.

use super::body::{self, Body};
use crate::policy::Verdict;
use bytes::Bytes;
use http::header::{HeaderName, HeaderValue, CONNECTION, CONTENT_TYPE};
use http::{Response, StatusCode};

const MARK: HeaderName = HeaderName::from_static("x-atoll-egress");

fn json(error: &str, rule: Option<&str>) -> Vec<u8> {
    let mut text = serde_json::json!({ "error": error, "rule": rule }).to_string().into_bytes();
    text.push(b'\n');
    text
}

fn refusal_json(host: &str, verdict: &Verdict) -> Vec<u8> {
    match verdict {
        Verdict::Deny { rule, reason } => {
            let reason = if rule.is_none() { format!(": {reason}") } else { String::new() };
            json(&format!("egress to {host} is refused{reason}"), rule.as_deref())
        }
        _ => json(&format!("egress to {host} is refused"), verdict.rule()),
    }
}

/// A whole response that refuses a connection before HTTP is served on it; the connection ends after it.
pub fn refusal(host: &str, verdict: &Verdict) -> Vec<u8> {
    let body = refusal_json(host, verdict);
    let mut response = format!(
        "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\nx-atoll-egress: denied\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    response.extend_from_slice(&body);
    response
}

fn answer(status: StatusCode, mark: &'static str, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(body::full(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(MARK, HeaderValue::from_static(mark));
    response
}

pub fn denied(host: &str, verdict: &Verdict) -> Response<Body> {
    answer(StatusCode::FORBIDDEN, "denied", refusal_json(host, verdict))
}

/// Refused for what the request is, and not by a rule.
pub fn refused(status: StatusCode, reason: &str) -> Response<Body> {
    answer(status, "denied", json(reason, None))
}

/// The host did not answer, or not soundly.
pub fn failed(status: StatusCode, reason: &str) -> Response<Body> {
    answer(status, "failed", json(reason, None))
}

/// The connection ends after this answer, where the protocol has a word for it.
pub fn closing(mut response: Response<Body>, h2: bool) -> Response<Body> {
    if !h2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_whole_response_that_names_the_rule() {
        let verdict = Verdict::Deny { rule: Some("creation.deny[0]".to_owned()), reason: "denied".to_owned() };
        let text = String::from_utf8(refusal("evil.example", &verdict)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 403 ") && head.contains("\r\nx-atoll-egress: denied\r\n"));
        assert!(head.contains(&format!("content-length: {}", body.len())));
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            body,
            serde_json::json!({ "error": "egress to evil.example is refused", "rule": "creation.deny[0]" })
        );
    }
}
