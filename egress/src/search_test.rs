use super::*;
use crate::replacing::{Replacing, STEP_BYTES_MAX};
use bytes::Bytes;
use std::sync::Arc;

/// A small generator, so that a failing case can be repeated by its seed.
pub struct Random(pub u64);
impl Random {
    pub fn step(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, bound: usize) -> usize {
        (self.step() % bound as u64) as usize
    }
}

fn matcher(pairs: &[(&str, &str)]) -> Arc<Matcher> {
    let pairs = pairs.iter().map(|(a, b)| (a.as_bytes().to_vec(), Zeroizing::new(b.as_bytes().to_vec()))).collect();
    Arc::new(Matcher::new(pairs))
}

/// What leftmost-longest replacement says, without cleverness.
fn plain(pairs: &[(String, String)], text: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let longest = pairs.iter().filter(|(p, _)| text[at..].starts_with(p.as_bytes())).max_by_key(|(p, _)| p.len());
        match longest {
            Some((pattern, replacement)) => {
                out.extend_from_slice(replacement.as_bytes());
                at += pattern.len();
            }
            None => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

fn streamed(matcher: &Arc<Matcher>, text: &[u8], mut cut: impl FnMut() -> usize) -> Vec<u8> {
    let mut replacing = Replacing::new(matcher.clone());
    let (mut out, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let end = (at + cut()).min(text.len());
        replacing.push(Bytes::copy_from_slice(&text[at..end]));
        while let Some(put) = replacing.pull() {
            out.extend_from_slice(&put);
        }
        at = end;
    }
    replacing.finish();
    while let Some(put) = replacing.pull() {
        out.extend_from_slice(&put);
    }
    out
}

#[test]
fn random_patterns_texts_and_borders_agree_with_the_plain_search() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..4000 {
        let alphabet = 2 + random.below(3);
        let mut word = |max: usize| -> String {
            let length = 1 + random.below(max);
            (0..length).map(|_| (b'a' + random.below(alphabet) as u8) as char).collect()
        };
        let mut pairs: Vec<(String, String)> = Vec::new();
        for number in 0..(1 + round % 12) {
            let pattern = word(12);
            if pairs.iter().all(|(known, _)| *known != pattern) {
                pairs.push((pattern, format!("<{number}>")));
            }
        }
        let text: String = (0..20).map(|_| word(10)).collect();
        let borrowed: Vec<(&str, &str)> = pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let matcher = matcher(&borrowed);
        let expected = plain(&pairs, text.as_bytes());
        let mut used = Vec::new();
        assert_eq!(matcher.replace(text.as_bytes(), &mut used).unwrap_or(text.clone().into_bytes()), expected);
        for size in [1, 2, 3, 7] {
            assert_eq!(streamed(&matcher, text.as_bytes(), || size), expected, "{pairs:?} {text}");
        }
        let mut cuts = Random(round as u64 + 1);
        assert_eq!(streamed(&matcher, text.as_bytes(), || 1 + cuts.below(20)), expected);
    }
}

#[test]
fn a_pattern_that_is_the_start_of_another_gives_way_to_it() {
    let matcher = matcher(&[("osb_1", "A"), ("osb_12", "B")]);
    for size in 1..8 {
        assert_eq!(streamed(&matcher, b"osb_1 osb_12 osb_13 osb_1", || size), b"A B A3 A");
    }
}

#[test]
fn nothing_is_held_back_that_cannot_be_the_start_of_a_pattern() {
    let mut replacing = Replacing::new(matcher(&[("osb_sealed_aa", "x")]));
    replacing.push(Bytes::from_static(b"data: one\n\n"));
    assert_eq!(replacing.pull().unwrap(), &b"data: one\n\n"[..]);
    replacing.push(Bytes::from_static(b"data: osb_sea"));
    assert_eq!(replacing.pull().unwrap(), &b"data: "[..]);
    replacing.push(Bytes::from_static(b"led_aa"));
    assert_eq!(replacing.pull().unwrap(), &b"x"[..]);
}

#[test]
fn a_long_replacement_comes_in_steps() {
    let value = "v".repeat(64 * 1024);
    let matcher = matcher(&[("ph", &value)]);
    let mut replacing = Replacing::new(matcher);
    replacing.push(Bytes::from("ph".repeat(1000)));
    replacing.finish();
    let mut total = 0;
    while let Some(put) = replacing.pull() {
        assert!(put.len() <= STEP_BYTES_MAX + value.len());
        total += put.len();
    }
    assert_eq!(total, 1000 * value.len());
}

#[test]
fn a_long_pattern_of_one_letter_takes_linear_time() {
    let pattern = format!("{}b", "a".repeat(64 * 1024));
    let matcher = matcher(&[(&pattern, "x")]);
    let text = vec![b'a'; 1024 * 1024];
    assert_eq!(streamed(&matcher, &text, || 1000).len(), text.len());
}
