//! The channel to the server: frames in, answers and reports out. The process lives as long as its input.

use crate::accept;
use crate::compiled::CompiledPlan;
use crate::dns::server;
use crate::egress::Egress;
use crate::lines::Lines;
use crate::model::{Ended, Frame, Put, Start};
use crate::output::{Answer, Output, Report};
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, UdpSocket};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

/// Connections that wait for `accept`.
const BACKLOG: u32 = 4096;
/// Frames that are read ahead of the one at work.
const FRAMES_MAX: usize = 4;

/// Serves until the input ends.
pub async fn serve(input: impl Read + Send + 'static, to: impl Write + Send + 'static) -> io::Result<()> {
    let output = Output::start(to);
    let mut frames = read_frames(input);
    let mut egress: Option<Arc<Egress>> = None;
    while let Some(line) = frames.recv().await {
        let line = line?;
        let Ok(frame) = serde_json::from_slice::<Frame>(&line) else {
            // Nothing of it is shown: it may hold a value.
            output.trouble("a frame of the server is not valid");
            continue;
        };
        let seq = frame.seq;
        let (answer, started) = match act(&frame.op, &line, egress.as_ref(), &output).await {
            Ok(started) => (Answer::Ok { seq }, started),
            Err(message) => (Answer::Error { seq, message }, None),
        };
        output.answer(&answer).await;
        if let Some(started) = started {
            output.announce(&Report::Ready).await;
            egress = Some(started);
        }
    }
    Ok(())
}

/// A thread of its own reads, so that no buffer of a library keeps a copy.
fn read_frames(input: impl Read + Send + 'static) -> mpsc::Receiver<io::Result<Zeroizing<Vec<u8>>>> {
    let (send, frames) = mpsc::channel(FRAMES_MAX);
    std::thread::spawn(move || {
        let mut lines = Lines::new(input);
        while let Some(line) = lines.read().transpose() {
            let failed = line.is_err();
            if send.blocking_send(line).is_err() || failed {
                return;
            }
        }
    });
    frames
}

async fn act(
    op: &str,
    line: &[u8],
    egress: Option<&Arc<Egress>>,
    output: &Output,
) -> Result<Option<Arc<Egress>>, String> {
    match (op, egress) {
        ("start", None) => start(parse(line)?, output).await.map(Some),
        ("start", Some(_)) => Err("already started".into()),
        (_, None) => Err("not started".into()),
        ("put", Some(egress)) => {
            let put: Put = parse(line)?;
            let plan = CompiledPlan::compile(put.plan)?;
            egress.sandboxes.put(&put.sandbox, put.address.to_canonical(), plan, &egress.limits);
            Ok(None)
        }
        ("drop", Some(egress)) => {
            egress.sandboxes.drop(&parse::<Ended>(line)?.sandbox);
            Ok(None)
        }
        _ => Err("no such operation".into()),
    }
}

/// The message tells where the fault is; the text of serde's would hold what was there.
fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|fault| {
        let what = match fault.classify() {
            serde_json::error::Category::Data => "has fields that are not as documented",
            _ => "is not JSON",
        };
        format!("the frame {what} (at byte {})", fault.column())
    })
}

async fn start(start: Start, output: &Output) -> Result<Arc<Egress>, String> {
    let egress = Arc::new(Egress::new(start, output.clone())?);
    let bound = |what: &str, place: std::net::SocketAddr| {
        let what = what.to_owned();
        move |fault: io::Error| format!("cannot listen at {place} ({what}): {fault}")
    };
    let connections = listen(egress.listen).map_err(bound("TCP", egress.listen))?;
    let questions = UdpSocket::bind(egress.dns).await.map_err(bound("UDP", egress.dns))?;
    let questions_tcp = listen(egress.dns).map_err(bound("TCP", egress.dns))?;
    tokio::spawn(accept::serve(egress.clone(), connections));
    tokio::spawn(server::serve_udp(egress.clone(), questions));
    tokio::spawn(server::serve_tcp(egress.clone(), questions_tcp));
    let told = egress.clone();
    tokio::spawn(async move {
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        loop {
            seconds.tick().await;
            told.sandboxes.tell_dropped(&told.output);
        }
    });
    Ok(egress)
}

fn listen(place: std::net::SocketAddr) -> io::Result<TcpListener> {
    let socket = if place.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A process that takes the place of one that ended must not wait for its connections to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(place)?;
    socket.listen(BACKLOG)
}
