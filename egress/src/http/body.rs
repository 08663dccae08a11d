//! Bodies on their way: counted, with values in or out of them. All are pulled, so that a slow reader slows its writer.

use super::record::Record;
use crate::replacing::Replacing;
use crate::search::Matcher;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use tokio::sync::OwnedSemaphorePermit;

pub type Body = UnsyncBoxBody<Bytes, Error>;
pub type Polled = Poll<Option<Result<Frame<Bytes>, Error>>>;

pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Which way the bytes of a body go, as the sandbox sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Sent,
    Received,
}

/// Counts on the sandbox's side, and runs `end` once, when the body ends or is dropped.
pub struct Metered<B> {
    inner: B,
    record: Arc<Record>,
    way: Way,
    end: Option<Box<dyn FnOnce() + Send>>,
}

impl<B> Metered<B> {
    pub fn new(inner: B, record: Arc<Record>, way: Way, end: Option<Box<dyn FnOnce() + Send>>) -> Self {
        Metered { inner, record, way, end }
    }
}

impl<B> Drop for Metered<B> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}

impl<B> http_body::Body for Metered<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                let bytes = match (frame.data_ref(), frame.trailers_ref()) {
                    (Some(data), _) => data.len() as u64,
                    (_, Some(trailers)) => super::headers::bytes_of(trailers),
                    _ => 0,
                };
                match this.way {
                    Way::Sent => this.record.add_sent(bytes),
                    Way::Received => this.record.add_received(bytes),
                }
            }
            Some(Err(_)) => {}
            None => {
                if let Some(end) = this.end.take() {
                    end();
                }
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// What is done with each pattern that was replaced.
pub type Found = Box<dyn FnMut(&[u32]) + Send>;

/// Replaces in a body as it comes.
pub struct Replaced {
    inner: Body,
    replacing: Replacing,
    /// Trailers are replaced in too, with the same patterns.
    trailers: Option<Arc<Matcher>>,
    held_trailers: Option<HeaderMap>,
    ended: bool,
    /// The length was told: a replacement may not change it any more.
    length: Option<u64>,
    found: Option<Found>,
}

impl Replaced {
    pub fn new(inner: Body, replacing: Replacing) -> Self {
        Replaced { inner, replacing, trailers: None, held_trailers: None, ended: false, length: None, found: None }
    }

    pub fn with_trailers(mut self, matcher: Arc<Matcher>) -> Self {
        self.trailers = Some(matcher);
        self
    }

    /// The length that is left of a body whose length was told.
    pub fn with_length(mut self, length: u64) -> Self {
        self.length = Some(length);
        self
    }

    pub fn with_found(mut self, found: Found) -> Self {
        self.found = Some(found);
        self
    }
}

impl http_body::Body for Replaced {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        loop {
            let put = this.replacing.pull();
            let used = this.replacing.take_used();
            if let (Some(found), false) = (&mut this.found, used.is_empty()) {
                found(&used);
            }
            if this.length.is_some() && this.replacing.grown() != 0 {
                let text = "a placeholder stands beyond the first MiB of a body whose length was told";
                return Poll::Ready(Some(Err(Error::new(ErrorKind::InvalidData, text))));
            }
            if let Some(put) = put {
                this.length = this.length.map(|left| left.saturating_sub(put.len() as u64));
                return Poll::Ready(Some(Ok(Frame::data(put))));
            }
            if this.ended {
                return Poll::Ready(this.held_trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.replacing.push(data),
                    Err(frame) => {
                        let mut trailers = frame.into_trailers().unwrap_or_default();
                        if let Some(matcher) = &this.trailers {
                            mask_headers(&mut trailers, matcher);
                        }
                        this.held_trailers = Some(trailers);
                    }
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    this.ended = true;
                    this.replacing.finish();
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map(SizeHint::with_exact).unwrap_or_default()
    }
}

/// Replaces in the values of headers. A value that is no header any more is dropped.
pub fn mask_headers(headers: &mut HeaderMap, matcher: &Matcher) {
    for (_, value) in headers.iter_mut() {
        if let Some(text) = matcher.replace(value.as_bytes(), &mut Vec::new()) {
            *value = http::HeaderValue::from_bytes(&text).unwrap_or(http::HeaderValue::from_static(""));
        }
    }
}

/// What was read ahead, then the rest of a body. Holds its share of the sandbox's buffers until it is sent.
pub struct Ahead {
    read: Bytes,
    rest: Body,
    share: Option<OwnedSemaphorePermit>,
}

impl Ahead {
    pub fn new(read: Bytes, rest: Body, share: Option<OwnedSemaphorePermit>) -> Self {
        Ahead { read, rest, share }
    }
}

impl http_body::Body for Ahead {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        if this.read.is_empty() {
            this.share = None;
            return Pin::new(&mut this.rest).poll_frame(cx);
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.read)))))
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.read.len() as u64;
        self.rest.size_hint().exact().map(|rest| SizeHint::with_exact(rest + ahead)).unwrap_or_default()
    }
}

/// Reads on until there is more than `max` or the end. The flag tells whether the end was reached; trailers are lost. The bytes are copied
/// together, so that a body of many small frames takes no more memory than it has bytes.
pub async fn read_ahead(body: &mut Body, max: usize) -> Result<(Bytes, bool), Error> {
    let mut read = Vec::new();
    while read.len() <= max {
        match body.frame().await {
            Some(frame) => {
                if let Ok(data) = frame?.into_data() {
                    read.extend_from_slice(&data);
                }
            }
            None => return Ok((read.into(), true)),
        }
    }
    Ok((read.into(), body.is_end_stream()))
}

#[cfg(test)]
#[path = "body_test.rs"]
pub mod tests;
