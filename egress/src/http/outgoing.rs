//! The body of a request as it goes out: values in it, and its length told right.
//!
//! A body of a told length up to a MiB is read whole. A longer one keeps its length unless a placeholder stands in its first MiB (many
//! hosts refuse a body without one); one that comes later then fails the request instead of going out short. What has no length is replaced in as
//! it comes.

use super::answer;
use super::body::{self, Ahead, Body, Replaced};
use super::record::Record;
use crate::compiled::CompiledPlan;
use crate::signing::{BodyNeed, SIGNED_BODY_BYTES_MAX};
use crate::substitute::{Context, HostSecrets, Used};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use std::sync::Arc;

/// Bodies up to this length are read before they are sent.
pub const BUFFERED_BODY_BYTES_MAX: usize = 1024 * 1024;
/// With values in it.
const REPLACED_BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

pub struct Outgoing {
    pub body: Body,
    /// All of it, where it was read.
    pub whole: Option<Bytes>,
    pub changed: bool,
}

/// `head` gets the right `Content-Length`, or none.
pub async fn prepare(
    head: &mut Parts,
    mut body: Body,
    plan: &CompiledPlan,
    secrets: &Arc<HostSecrets>,
    need: BodyNeed,
    used: &mut Used,
    record: &Arc<Record>,
) -> Result<Outgoing, Box<Response<Body>>> {
    if body.is_end_stream() {
        return Ok(Outgoing { body, whole: Some(Bytes::new()), changed: false });
    }
    let context = Context::of_body(&head.headers);
    let stream = context.and_then(|context| Some((context, secrets.stream(context)?)));
    let length = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    let short = length.is_some_and(|length| length <= BUFFERED_BODY_BYTES_MAX);
    if need == BodyNeed::Whole || (stream.is_some() && short) {
        return whole(head, body, plan, secrets, stream.map(|(context, _)| context), need, used, record).await;
    }
    let Some((context, replacing)) = stream.filter(|_| need == BodyNeed::Nothing) else {
        return Ok(Outgoing { body, whole: None, changed: false });
    };
    // What is in it is known only when it has gone out, so no response may show any of them.
    used.mask_also(secrets.of_bodies());
    let mut replaced = match length {
        None => Replaced::new(body, replacing),
        Some(length) => {
            let share = plan.http.buffer(BUFFERED_BODY_BYTES_MAX).await;
            let (read, _) =
                body::read_ahead(&mut body, BUFFERED_BODY_BYTES_MAX).await.map_err(|error| broken(record, &error))?;
            let found = secrets.is_in(context, &read);
            let replaced = Replaced::new(Ahead::new(read, body, share).boxed_unsync(), replacing);
            if found {
                replaced
            } else {
                replaced.with_length(length as u64)
            }
        }
    };
    if replaced.size_hint().exact().is_none() {
        head.headers.remove(CONTENT_LENGTH);
    }
    let (names, record) = (secrets.clone(), record.clone());
    replaced = replaced
        .with_found(Box::new(move |patterns| names.names_of(context, patterns).for_each(|name| record.secret(name))));
    Ok(Outgoing { body: replaced.boxed_unsync(), whole: None, changed: false })
}

#[allow(clippy::too_many_arguments)]
async fn whole(
    head: &mut Parts,
    mut body: Body,
    plan: &CompiledPlan,
    secrets: &HostSecrets,
    context: Option<Context>,
    need: BodyNeed,
    used: &mut Used,
    record: &Arc<Record>,
) -> Result<Outgoing, Box<Response<Body>>> {
    let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let max = if need == BodyNeed::Whole { SIGNED_BODY_BYTES_MAX } else { BUFFERED_BODY_BYTES_MAX };
    if body.size_hint().lower() > max as u64 {
        return Err(too_long(record));
    }
    let share = plan.http.buffer(length.unwrap_or(max).min(max)).await;
    let (mut bytes, ended) = body::read_ahead(&mut body, max).await.map_err(|error| broken(record, &error))?;
    if !ended || bytes.len() > max {
        return Err(too_long(record));
    }
    let replaced = match context {
        Some(context) => secrets.text(context, &bytes, used, REPLACED_BODY_BYTES_MAX).map_err(|_| too_long(record))?,
        None => None,
    };
    let changed = replaced.is_some();
    if let Some(replaced) = replaced {
        bytes = Bytes::copy_from_slice(&replaced);
    }
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    head.headers.remove(TRANSFER_ENCODING);
    let body = Ahead::new(bytes.clone(), body::empty(), share).boxed_unsync();
    Ok(Outgoing { body, whole: Some(bytes), changed })
}

fn too_long(record: &Record) -> Box<Response<Body>> {
    let reason = "the body is too long to be signed, or to have secrets put into it";
    record.refuse(413, reason);
    Box::new(answer::refused(StatusCode::PAYLOAD_TOO_LARGE, reason))
}

fn broken(record: &Record, error: &std::io::Error) -> Box<Response<Body>> {
    record.fail(Some(400), &format!("the body of the request broke off: {error}"));
    Box::new(answer::refused(StatusCode::BAD_REQUEST, "the body of the request broke off"))
}
