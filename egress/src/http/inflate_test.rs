use super::super::body::{empty, tests::chunks};
use super::*;
use http_body_util::BodyExt;

fn compressed(text: &[u8], kind: &str) -> Vec<u8> {
    let level = flate2::Compression::default();
    match kind {
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "zlib" => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        _ => {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
    }
}

#[tokio::test]
async fn compressed_bodies_are_read_whatever_their_chunks() {
    let text: Vec<u8> = (0..200_000u32).flat_map(|n| (n % 977).to_string().into_bytes()).collect();
    for (kind, name) in [("gzip", "gzip"), ("zlib", "deflate"), ("bare", "deflate")] {
        let all = compressed(&text, kind);
        for size in [1, 7, 1000, all.len()] {
            let body = chunks(all.chunks(size).map(<[u8]>::to_vec).collect(), None);
            let inflated = Inflated::new(body, name.as_bytes()).unwrap();
            assert!(inflated.collect().await.unwrap().to_bytes() == text, "{kind} {size}");
        }
    }
    assert!(Inflated::new(empty(), b"br").is_none());
    let broken = chunks(vec![compressed(&text, "gzip")[..5000].to_vec()], None);
    assert!(Inflated::new(broken, b"gzip").unwrap().collect().await.is_err());
}

#[tokio::test]
async fn a_bomb_comes_out_in_small_pieces() {
    let bomb = compressed(&vec![0; 20 << 20], "gzip");
    let mut inflated = Inflated::new(chunks(vec![bomb], None), b"gzip").unwrap();
    let mut total = 0;
    while let Some(frame) = inflated.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data.len() <= STEP_BYTES * 1100);
        total += data.len();
    }
    assert_eq!(total, 20 << 20);
}
