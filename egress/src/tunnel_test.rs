use super::*;
use std::convert::Infallible;
use std::future::pending;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const LONG: Duration = Duration::from_secs(3600);

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (dialled, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    (dialled.unwrap(), accepted.unwrap().0)
}

/// A tunnel between two streams, and what it ended with.
fn tunnel(
    client: TcpStream,
    server: TcpStream,
    first: &[u8],
    idle: Duration,
    cut: impl Future<Output = ()> + Send + 'static,
) -> tokio::task::JoinHandle<(End<Infallible>, u64, u64)> {
    let first = first.to_vec();
    tokio::spawn(async move {
        let (pipes, counts) = (Pipes::new(64), Counts::default());
        let end = relay(&client, &server, &pipes, &counts, idle, cut, async { Ok(first) }).await;
        (end, counts.sent(), counts.received())
    })
}

#[tokio::test]
async fn bytes_pass_both_ways_and_each_end_is_passed_on() {
    let ((mut client, inner), (outer, mut server)) = (pair().await, pair().await);
    let task = tunnel(inner, outer, b"first ", LONG, pending());
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let mut heard = Vec::new();
    server.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"first question");
    // The other direction goes on after the first has ended.
    server.write_all(b"answer").await.unwrap();
    server.shutdown().await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"answer");
    let (end, sent, received) = task.await.unwrap();
    assert!(matches!(end, End::Closed));
    assert_eq!((sent, received), (14, 6));
}

#[tokio::test]
async fn much_data_arrives_as_it_was_sent_in_both_directions() {
    let ((client, inner), (outer, server)) = (pair().await, pair().await);
    let task = tunnel(inner, outer, b"", LONG, pending());
    let data =
        |seed: u8| (0..8_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 ^ seed).collect::<Vec<u8>>();
    let exchange = |stream: TcpStream, give: Vec<u8>, want: Vec<u8>| async move {
        let (mut read, mut write) = stream.into_split();
        let writing = tokio::spawn(async move {
            write.write_all(&give).await.unwrap();
            write.shutdown().await.unwrap();
        });
        let mut got = Vec::new();
        read.read_to_end(&mut got).await.unwrap();
        writing.await.unwrap();
        assert!(got == want);
    };
    tokio::join!(exchange(client, data(1), data(2)), exchange(server, data(2), data(1)));
    assert!(matches!(task.await.unwrap(), (End::Closed, 8_000_000, 8_000_000)));
}

#[tokio::test]
async fn a_reset_ends_both_sides() {
    let ((client, inner), (outer, mut server)) = (pair().await, pair().await);
    let task = tunnel(inner, outer, b"", LONG, pending());
    client.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    assert!(matches!(task.await.unwrap().0, End::Broken(_)));
    assert!(matches!(server.read(&mut [0; 8]).await, Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_cut_ends_a_tunnel_whose_reader_is_stuck() {
    let ((mut client, inner), (outer, _server)) = (pair().await, pair().await);
    let (cut, resolved) = tokio::sync::oneshot::channel::<()>();
    let task = tunnel(inner, outer, b"", LONG, async { drop(resolved.await) });
    let filling = tokio::spawn(async move { while client.write_all(&[0; 65536]).await.is_ok() {} });
    tokio::task::yield_now().await;
    cut.send(()).unwrap();
    assert!(matches!(task.await.unwrap().0, End::Cut));
    filling.await.unwrap();
}

#[tokio::test]
async fn silence_ends_a_tunnel() {
    let ((_client, inner), (outer, _server)) = (pair().await, pair().await);
    let task = tunnel(inner, outer, b"", Duration::from_millis(40), pending());
    assert!(matches!(task.await.unwrap().0, End::Idle));
}

#[tokio::test]
async fn without_pipes_data_is_copied() {
    let (mut client, inner) = pair().await;
    let (outer, mut server) = pair().await;
    let count = AtomicU64::new(0);
    client.write_all(b"copied").await.unwrap();
    inner.readable().await.unwrap();
    while !copy_ready(&inner, &outer, &count).await.unwrap() && count.load(Ordering::Relaxed) < 6 {}
    let mut heard = [0; 6];
    server.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"copied");
}
