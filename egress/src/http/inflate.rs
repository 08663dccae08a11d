//! Bodies decompressed as they come, in small steps: little input may hold much output.

use super::body::{Body, Polled};
use bytes::{Buf, Bytes};
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http_body::Frame;
use std::io::{Error, Write};
use std::pin::Pin;
use std::task::{ready, Context, Poll};

/// Compressed bytes that are taken at once: a thousand times as much may come out of them.
const STEP_BYTES: usize = 512;

enum Decoder {
    Gzip(MultiGzDecoder<Vec<u8>>),
    /// `deflate` is zlib, but some servers send it bare.
    Deflate,
    Zlib(ZlibDecoder<Vec<u8>>),
    Bare(DeflateDecoder<Vec<u8>>),
}

/// A body decompressed as it comes.
pub struct Inflated {
    inner: Body,
    decoder: Decoder,
    input: Bytes,
    ended: bool,
    trailers: Option<HeaderMap>,
}

impl Inflated {
    /// `None`: the encoding is not one of those that are known here.
    pub fn new(inner: Body, encoding: &[u8]) -> Option<Self> {
        let decoder = match encoding.to_ascii_lowercase().as_slice() {
            b"gzip" | b"x-gzip" => Decoder::Gzip(MultiGzDecoder::new(Vec::new())),
            b"deflate" => Decoder::Deflate,
            _ => return None,
        };
        Some(Inflated { inner, decoder, input: Bytes::new(), ended: false, trailers: None })
    }

    fn step(&mut self) -> Result<Bytes, Error> {
        if let (Decoder::Deflate, Some(&first)) = (&self.decoder, self.input.first()) {
            let zlib = first & 0x0f == 8;
            self.decoder = if zlib {
                Decoder::Zlib(ZlibDecoder::new(Vec::new()))
            } else {
                Decoder::Bare(DeflateDecoder::new(Vec::new()))
            };
        }
        let part = self.input.split_to(self.input.len().min(STEP_BYTES));
        Ok(std::mem::take(match &mut self.decoder {
            Decoder::Gzip(decoder) => written(decoder, &part, |d| d.get_mut(), Write::flush)?,
            Decoder::Zlib(decoder) => written(decoder, &part, |d| d.get_mut(), Write::flush)?,
            Decoder::Bare(decoder) => written(decoder, &part, |d| d.get_mut(), Write::flush)?,
            Decoder::Deflate => return Ok(Bytes::new()),
        })
        .into())
    }

    fn finish(&mut self) -> Result<Bytes, Error> {
        Ok(std::mem::take(match &mut self.decoder {
            Decoder::Gzip(decoder) => {
                decoder.try_finish()?;
                decoder.get_mut()
            }
            Decoder::Zlib(decoder) => {
                decoder.try_finish()?;
                decoder.get_mut()
            }
            Decoder::Bare(decoder) => {
                decoder.try_finish()?;
                decoder.get_mut()
            }
            Decoder::Deflate => return Ok(Bytes::new()),
        })
        .into())
    }
}

fn written<'a, D: Write>(
    decoder: &'a mut D,
    part: &[u8],
    out: fn(&mut D) -> &mut Vec<u8>,
    flush: fn(&mut D) -> Result<(), Error>,
) -> Result<&'a mut Vec<u8>, Error> {
    decoder.write_all(part)?;
    flush(decoder)?;
    Ok(out(decoder))
}

impl http_body::Body for Inflated {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        loop {
            while this.input.has_remaining() {
                let out = this.step()?;
                if !out.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(out))));
                }
            }
            if this.ended {
                return Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.input = data,
                    Err(frame) => this.trailers = frame.into_trailers().ok(),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    this.ended = true;
                    let out = this.finish()?;
                    if !out.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(out))));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "inflate_test.rs"]
mod tests;
