//! One question to one resolver: over UDP from a port of its own with a random number, over TCP if the answer was cut short.

use super::message::{self, Response};
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_secs(2);
/// Datagrams that are no answer to the question, as a guesser of numbers sends.
const STRAY_MAX: usize = 16;

/// The message and what it says.
pub struct Answered {
    pub message: Vec<u8>,
    pub response: Response,
}

pub async fn exchange(resolver: SocketAddr, name: &str, kind: u16) -> io::Result<Answered> {
    let answered = timeout(TIMEOUT, over_udp(resolver, name, kind)).await??;
    if !answered.response.truncated {
        return Ok(answered);
    }
    timeout(TIMEOUT, over_tcp(resolver, name, kind)).await?
}

async fn over_udp(resolver: SocketAddr, name: &str, kind: u16) -> io::Result<Answered> {
    let any = if resolver.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(resolver).await?;
    let id = random_id()?;
    socket.send(&message::query(id, name, kind)).await?;
    let mut buffer = vec![0; message::UDP_BYTES_MAX];
    for _ in 0..STRAY_MAX {
        let length = socket.recv(&mut buffer).await?;
        if let Some(response) = Response::parse(&buffer[..length], id, name, kind) {
            buffer.truncate(length);
            return Ok(Answered { message: buffer, response });
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "no answer to the question"))
}

async fn over_tcp(resolver: SocketAddr, name: &str, kind: u16) -> io::Result<Answered> {
    let mut stream = TcpStream::connect(resolver).await?;
    let id = random_id()?;
    let query = message::query(id, name, kind);
    let mut framed = (query.len() as u16).to_be_bytes().to_vec();
    framed.extend_from_slice(&query);
    stream.write_all(&framed).await?;
    let mut message = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut message).await?;
    match Response::parse(&message, id, name, kind) {
        Some(response) if !response.truncated => Ok(Answered { message, response }),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "no answer to the question")),
    }
}

fn random_id() -> io::Result<u16> {
    let mut bytes = [0; 2];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("no random numbers"))?;
    Ok(u16::from_be_bytes(bytes))
}
