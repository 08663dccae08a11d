//! How a client is told that it is refused.

use crate::limits::{LINGER, LINGER_BYTES_MAX};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A fatal alert `access_denied` in a record of TLS 1.2, as any client reads it before the handshake (RFC 8446 § 6.2).
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// Ends with a reset.
pub fn reset(stream: TcpStream) {
    // With a linger time of zero close(2) sends a reset instead of the end.
    let _ = stream.set_linger(Some(Duration::ZERO));
}

/// Tells a TLS client that has sent its hello.
pub async fn alert_denied(stream: TcpStream) {
    say(stream, &ACCESS_DENIED).await;
}

/// The host could not be reached.
pub async fn alert_failed(stream: TcpStream) {
    say(stream, &INTERNAL_ERROR).await;
}

/// Sends the last bytes and the end, then reads for a while: a close with unread bytes would be a reset, and the client would lose what was said.
pub async fn say(mut stream: TcpStream, bytes: &[u8]) {
    let lingering = async {
        stream.write_all(bytes).await?;
        stream.shutdown().await?;
        let mut left = LINGER_BYTES_MAX;
        let mut buffer = [0; 1024];
        while left > 0 {
            match stream.read(&mut buffer).await? {
                0 => break,
                length => left = left.saturating_sub(length),
            }
        }
        Ok::<_, std::io::Error>(())
    };
    let _ = timeout(LINGER, lingering).await;
}
