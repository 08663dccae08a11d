//! After an upgrade (WebSocket) bytes are copied both ways. Nothing is replaced or masked in them: they are no HTTP, and may be anything.

use super::record::Record;
use super::Session;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const COPY_BYTES: usize = 16 * 1024;

/// What a request was let through as: each later plan judges it again.
#[derive(Clone)]
pub struct Judged {
    pub host: String,
    pub port: u16,
    pub method: String,
    pub path: String,
}

struct Counted {
    inner: TokioIo<Upgraded>,
    record: Arc<Record>,
}

impl AsyncRead for Counted {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let before = out.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, out))?;
        this.record.add_sent((out.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.inner).poll_write(cx, bytes))?;
        this.record.add_received(written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

/// Copies until one side ends, the plan refuses it, or nothing has moved for `activity::STREAM_TIMEOUT`.
pub fn copy(session: Arc<Session>, record: Arc<Record>, client: OnUpgrade, host: OnUpgrade, judged: Judged) {
    tokio::spawn(async move {
        let copied = async {
            let (client, host) = tokio::try_join!(client, host).map_err(std::io::Error::other)?;
            let mut client = Counted { inner: TokioIo::new(client), record: record.clone() };
            let mut host = TokioIo::new(host);
            tokio::io::copy_bidirectional_with_sizes(&mut client, &mut host, COPY_BYTES, COPY_BYTES).await
        };
        let ended = tokio::select! {
            copied = copied => copied.err().map(|error| error.to_string()),
            () = session.connection.cut() => Some("the connection was cut".to_owned()),
            () = refused(&session, &judged) => Some("refused by a changed policy".to_owned()),
            () = session.activity.expired() => Some("idle for too long".to_owned()),
        };
        if let Some(reason) = ended {
            record.note(&reason);
        }
    });
}

async fn refused(session: &Session, judged: &Judged) {
    loop {
        session.connection.plan_changed().await;
        if session.judge(&session.connection.plan(), judged).is_denied() {
            return;
        }
    }
}
