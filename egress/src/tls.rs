//! TLS that ends here: towards the sandbox with a certificate of its authority, towards the host with the checks of any client.

use crate::authority::Authority;
use crate::name::Host;
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig};
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{client, server, LazyConfigAcceptor, TlsConnector};

pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Plaintext that waits to be encrypted on one connection.
const BUFFER_BYTES_MAX: usize = 32 * 1024;
/// Sessions that clients may resume, for each host.
const SESSIONS_MAX: usize = 32;

const H2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

#[derive(Debug)]
struct OneCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for OneCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// How this process answers as a host. Early data is never taken: it can be replayed.
pub fn server_config(authority: &Authority, host: &str) -> Result<ServerConfig> {
    let certificate = authority.certify(host)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(OneCertificate(certificate)));
    config.alpn_protocols = vec![H2.to_vec(), HTTP1.to_vec()];
    config.max_early_data_size = 0;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    Ok(config)
}

/// Ends TLS of a client that said it wants `host`. Whatever the ClientHello says now must still be that.
pub async fn accept<S>(stream: S, host: &str, config: Arc<ServerConfig>) -> Result<server::TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let handshake = async {
        let start = LazyConfigAcceptor::new(Default::default(), stream).await?;
        let asked = start.client_hello().server_name().map(Host::parse);
        let wanted = Host::parse(host);
        let matches = match asked {
            Some(asked) => asked.is_some() && asked == wanted,
            // Clients do not name addresses (RFC 6066, section 3).
            None => matches!(wanted, Some(Host::Address(_))),
        };
        if !matches {
            return Err(Error::new(
                ErrorKind::InvalidData,
                "the name in the TLS handshake is not that of the connection",
            ));
        }
        start.into_stream(config).await
    };
    let mut stream = timed(handshake).await?;
    stream.get_mut().1.set_buffer_limit(Some(BUFFER_BYTES_MAX));
    Ok(stream)
}

/// Starts TLS to a host, and verifies that it is that host.
pub async fn connect<S>(stream: S, host: &str, config: &ClientConfig, h2: bool) -> Result<client::TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut config = config.clone();
    config.alpn_protocols = if h2 { vec![H2.to_vec(), HTTP1.to_vec()] } else { vec![HTTP1.to_vec()] };
    config.enable_early_data = false;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(bare.to_owned()).map_err(|error| Error::new(ErrorKind::InvalidInput, error))?;
    let mut stream = timed(TlsConnector::from(Arc::new(config)).connect(name, stream)).await?;
    stream.get_mut().1.set_buffer_limit(Some(BUFFER_BYTES_MAX));
    Ok(stream)
}

async fn timed<T>(handshake: impl std::future::Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(done) => done,
        Err(_) => Err(Error::new(ErrorKind::TimedOut, "the TLS handshake took too long")),
    }
}

pub fn speaks_h2(alpn: Option<&[u8]>) -> bool {
    alpn == Some(H2)
}
