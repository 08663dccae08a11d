use super::*;
use std::collections::VecDeque;

pub fn chunks(list: Vec<Vec<u8>>, trailers: Option<HeaderMap>) -> Body {
    let mut frames: VecDeque<Frame<Bytes>> = list.into_iter().map(|chunk| Frame::data(chunk.into())).collect();
    frames.extend(trailers.map(Frame::trailers));
    Listed(frames).boxed_unsync()
}

struct Listed(VecDeque<Frame<Bytes>>);

impl http_body::Body for Listed {
    type Data = Bytes;
    type Error = Error;
    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Polled {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

fn matcher() -> Arc<Matcher> {
    Arc::new(Matcher::new(vec![(b"the-value".to_vec(), zeroize::Zeroizing::new(b"osb_1".to_vec()))]))
}

#[tokio::test]
async fn a_body_is_masked_across_chunks_and_in_its_trailers() {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-t", "a the-value b".parse().unwrap());
    let body = chunks(vec![b"one the-".to_vec(), b"val".to_vec(), b"ue two".to_vec()], Some(trailers));
    let replaced = Replaced::new(body, Replacing::new(matcher())).with_trailers(matcher());
    let collected = replaced.collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-t"], "a osb_1 b");
    assert_eq!(collected.to_bytes(), "one osb_1 two");
}

#[tokio::test]
async fn a_body_of_a_told_length_does_not_change_it() {
    let same = chunks(vec![b"abc".to_vec(), b"the-valu".to_vec()], None);
    let body = Replaced::new(same, Replacing::new(matcher())).with_length(11);
    assert_eq!(body.size_hint().exact(), Some(11));
    assert_eq!(body.collect().await.unwrap().to_bytes(), "abcthe-valu");
    let other = chunks(vec![b"abcthe-value".to_vec()], None);
    assert!(Replaced::new(other, Replacing::new(matcher())).with_length(12).collect().await.is_err());
}
