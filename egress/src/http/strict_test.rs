use super::*;
use crate::search::tests::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What the parser gets of some input, in pieces of random length, and the fault.
async fn read(input: &[u8], seed: u64) -> (Vec<u8>, Option<&'static str>) {
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let mut random = Random(seed);
    let mut at = 0;
    let fault = Fault::default();
    let mut strict = Strict::new(server, fault.clone(), Arc::default());
    let mut out = Vec::new();
    let mut ended = false;
    let mut piece = vec![0; 50_000];
    while !ended {
        if at < input.len() {
            let end = (at + 1 + random.below(40)).min(input.len());
            client.write_all(&input[at..end]).await.unwrap();
            at = end;
        } else {
            client.shutdown().await.unwrap();
        }
        loop {
            tokio::select! {
                biased;
                done = strict.read(&mut piece) => match done {
                    Ok(0) | Err(_) => {
                        ended = true;
                        break;
                    }
                    Ok(length) => out.extend_from_slice(&piece[..length]),
                },
                () = std::future::ready(()) => break,
            }
        }
    }
    (out, fault.get().copied())
}

#[tokio::test]
async fn sound_requests_pass_unchanged() {
    for input in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab\ncdGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=\"y\"\r\na\nb\r\n00\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-T: 1\r\nX-U: 2\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\n\0\x01raw\r\n",
    ] {
        for seed in 1..20 {
            assert_eq!(read(input.as_bytes(), seed).await, (input.as_bytes().to_vec(), None), "{input:?}");
        }
    }
}

#[tokio::test]
async fn what_may_be_read_in_two_ways_is_refused() {
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
    for input in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nabcde",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nabcde",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nabcde",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\nX: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: 1\rY: 2\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n\r\nabc",
        &long,
    ] {
        for seed in 1..10 {
            let (passed, fault) = read(input.as_bytes(), seed).await;
            assert_eq!(passed, b"\0", "{input:?}");
            assert!(fault.is_some());
        }
    }
}

#[tokio::test]
async fn a_chunk_that_may_be_read_in_two_ways_ends_the_connection() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for chunks in [
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "-3\r\nabc\r\n",
        "0x3\r\nabc\r\n",
        " 3\r\nabc\r\n",
        "3 \r\nabc\r\n",
        "\r\n",
        "ffffffffffffffff1\r\n",
        "3;a\nb\r\nabc\r\n",
        "0\r\nX: 1\n\r\n\r\n",
        "0\r\nX : 1\r\n\r\n",
        "0\r\nX: 1\r\n Y: 2\r\n\r\n",
    ] {
        for seed in 1..10 {
            let (passed, fault) = read(format!("{head}{chunks}").as_bytes(), seed).await;
            assert!(fault.is_some(), "{chunks:?} {:?}", String::from_utf8_lossy(&passed));
        }
    }
}
