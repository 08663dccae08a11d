//! A response on its way back: without what is of the connection, and without values.

use super::body::{self, Body, Replaced};
use super::forward::{failed, Stop};
use super::headers;
use super::inflate::Inflated;
use super::record::Record;
use crate::replacing::Replacing;
use crate::search::Matcher;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{Response, StatusCode, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::io::Error;
use std::sync::Arc;

/// The response as the sandbox gets it.
pub fn answered(
    record: &Arc<Record>,
    response: Response<Incoming>,
    is_head: bool,
    matcher: Option<Arc<Matcher>>,
) -> Result<Response<Body>, Stop> {
    let (mut head, incoming) = response.into_parts();
    headers::strip_response(&mut head.headers);
    head.version = Version::HTTP_11;
    let body = incoming.map_err(Error::other).boxed_unsync();
    let Some(matcher) = matcher else { return Ok(Response::from_parts(head, body)) };
    body::mask_headers(&mut head.headers, &matcher);
    if is_head || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) || body.is_end_stream() {
        return Ok(Response::from_parts(head, body));
    }
    let mut encodings = head
        .headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .filter(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"));
    let encoding = (encodings.next().cloned(), encodings.next().is_some());
    let body = match encoding {
        (None, _) => body,
        (Some(encoding), false) => match Inflated::new(body, encoding.as_bytes().trim_ascii()) {
            Some(inflated) => {
                head.headers.remove(CONTENT_ENCODING);
                inflated.boxed_unsync()
            }
            None => return Err(unreadable(record)),
        },
        (Some(_), true) => return Err(unreadable(record)),
    };
    head.headers.remove(CONTENT_LENGTH);
    let replaced = Replaced::new(body, Replacing::new(matcher.clone())).with_trailers(matcher);
    Ok(Response::from_parts(head, replaced.boxed_unsync()))
}

fn unreadable(record: &Record) -> Stop {
    failed(record, "the response to a request with a secret is compressed in a way that cannot be searched, although identity was asked for")
}
