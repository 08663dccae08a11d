//! What must not come back: values that went out on a connection are replaced by their placeholders in all responses.

use crate::encoding;
use crate::search::Matcher;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Shorter values are not masked: they would be found everywhere, and are no secret.
pub const MASKED_BYTES_MIN: usize = 4;
/// Base64 of a short value is too short a text to be searched for.
const INSIDE_BYTES_MIN: usize = 8;
/// All patterns of one connection together; the automaton takes some thirty times as much memory.
pub const MASK_BYTES_MAX: usize = 1024 * 1024;
/// Different Basic credentials of one connection; the oldest are forgotten (their values are still masked).
const CREDENTIALS_MAX: usize = 64;

struct Mask {
    value: Zeroizing<String>,
    placeholder: String,
}

/// The values of one connection, those of former plans included.
#[derive(Default)]
pub struct Masks {
    values: Vec<Mask>,
    /// Credentials as sent and as the sandbox wrote them, in Base64.
    credentials: Vec<(Zeroizing<String>, String)>,
    matcher: Option<Arc<Matcher>>,
}

/// The values are too large to be masked together.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLarge;

impl Masks {
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub fn add(&mut self, value: &str, placeholder: &str) {
        if value.len() < MASKED_BYTES_MIN || self.values.iter().any(|mask| *mask.value == value) {
            return;
        }
        self.values.push(Mask { value: Zeroizing::new(value.to_owned()), placeholder: placeholder.to_owned() });
        self.matcher = None;
    }

    pub fn add_credential(&mut self, sent: Zeroizing<String>, written: String) {
        if self.credentials.iter().any(|(known, _)| *known == sent) {
            return;
        }
        if self.credentials.len() == CREDENTIALS_MAX {
            self.credentials.remove(0);
        }
        self.credentials.push((sent, written));
        self.matcher = None;
    }

    /// `None` if there is nothing to mask.
    pub fn matcher(&mut self) -> Result<Option<Arc<Matcher>>, TooLarge> {
        if self.is_empty() {
            return Ok(None);
        }
        if self.matcher.is_none() {
            let pairs = self.pairs();
            if pairs.iter().map(|(pattern, _)| pattern.len()).sum::<usize>() > MASK_BYTES_MAX {
                return Err(TooLarge);
            }
            self.matcher = Some(Arc::new(Matcher::new(pairs)));
        }
        Ok(self.matcher.clone())
    }

    fn pairs(&self) -> Vec<(Vec<u8>, Zeroizing<Vec<u8>>)> {
        let mut pairs: Vec<(Vec<u8>, Zeroizing<Vec<u8>>)> = Vec::new();
        let mut push = |pattern: &[u8], replacement: &[u8]| {
            if !pairs.iter().any(|(known, _)| known == pattern) {
                pairs.push((pattern.to_vec(), Zeroizing::new(replacement.to_vec())));
            }
        };
        for (sent, written) in &self.credentials {
            push(sent.as_bytes(), written.as_bytes());
        }
        for mask in &self.values {
            let (value, placeholder) = (mask.value.as_str(), mask.placeholder.as_str());
            push(value.as_bytes(), placeholder.as_bytes());
            for slash in [false, true] {
                push(&encoding::json(value, slash), &encoding::json(placeholder, slash));
            }
            // JSON that is told as a string of JSON.
            if let Ok(inner) = std::str::from_utf8(&encoding::json(value, false)) {
                push(&encoding::json(inner, false), placeholder.as_bytes());
            }
            push(&encoding::percent(value), &encoding::percent(placeholder));
            push(&encoding::percent_lower(value), &encoding::percent(placeholder));
            push(&encoding::form(value), &encoding::form(placeholder));
            if value.len() >= INSIDE_BYTES_MIN {
                for inside in encoding::base64_inside(value.as_bytes()) {
                    push(&inside, placeholder.as_bytes());
                }
            }
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(masks: &mut Masks, text: &str) -> String {
        let matcher = masks.matcher().unwrap().unwrap();
        let found = matcher.replace(text.as_bytes(), &mut Vec::new());
        String::from_utf8(found.unwrap_or(text.as_bytes().to_vec())).unwrap()
    }

    #[test]
    fn every_form_of_a_value_becomes_the_placeholder() {
        let mut masks = Masks::default();
        let value = "p@ss \"w/rd\"\n+x";
        masks.add(value, "osb_1");
        let json = serde_json::to_string(value).unwrap();
        assert_eq!(masked(&mut masks, &format!("a {value} b")), "a osb_1 b");
        assert_eq!(masked(&mut masks, &json), "\"osb_1\"");
        assert_eq!(masked(&mut masks, &json.replace('/', "\\/")), "\"osb_1\"");
        assert_eq!(masked(&mut masks, &serde_json::to_string(&json).unwrap()), "\"\\\"osb_1\\\"\"");
        assert_eq!(masked(&mut masks, "k=p%40ss%20%22w%2Frd%22%0A%2Bx&"), "k=osb_1&");
        assert_eq!(masked(&mut masks, "k=p%40ss%20%22w%2frd%22%0a%2bx&"), "k=osb_1&");
        assert_eq!(masked(&mut masks, "k=p%40ss+%22w%2Frd%22%0A%2Bx&"), "k=osb_1&");
        let token = encoding::base64(format!("someone:{value}").as_bytes());
        assert!(masked(&mut masks, &token).contains("osb_1"));
    }

    #[test]
    fn a_basic_credential_becomes_what_the_sandbox_wrote() {
        let mut masks = Masks::default();
        masks.add("the-value", "osb_1");
        let written = encoding::base64(b"user:osb_1");
        masks.add_credential(encoding::base64(b"user:the-value"), written.to_string());
        let echo = format!("Basic {}", *encoding::base64(b"user:the-value"));
        assert_eq!(masked(&mut masks, &echo), format!("Basic {}", *written));
    }

    #[test]
    fn values_too_large_together_are_refused() {
        let mut masks = Masks::default();
        for number in 0..8 {
            masks.add(&format!("{number}{}", "\"\\ ".repeat(20_000)), "osb");
        }
        assert_eq!(masks.matcher().err(), Some(TooLarge));
    }
}
