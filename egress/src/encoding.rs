//! The ways in which a text stands inside another: JSON strings, URLs, forms, Base64.

use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

pub type Encoded = Zeroizing<Vec<u8>>;

const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const LOWER: &[u8; 16] = b"0123456789abcdef";

/// Clients write Basic credentials with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

pub fn raw(text: &str) -> Encoded {
    Zeroizing::new(text.as_bytes().to_vec())
}

/// The inside of a JSON string (RFC 8259, section 7). `slash`: some writers escape `/` too.
pub fn json(text: &str, slash: bool) -> Encoded {
    let mut out = Zeroizing::new(Vec::with_capacity(text.len() * 6));
    for &byte in text.as_bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            b'/' if slash => out.extend_from_slice(b"\\/"),
            0..=31 => {
                out.extend_from_slice(b"\\u00");
                out.push(LOWER[usize::from(byte >> 4)]);
                out.push(LOWER[usize::from(byte & 15)]);
            }
            _ => out.push(byte),
        }
    }
    out
}

/// Percent-encodes all but the unreserved characters (RFC 3986, section 2.3).
pub fn percent(text: &str) -> Encoded {
    percent_with(text, UPPER, false)
}

pub fn percent_lower(text: &str) -> Encoded {
    percent_with(text, LOWER, false)
}

/// A value of `application/x-www-form-urlencoded`: as in a URL, but a space is `+`.
pub fn form(text: &str) -> Encoded {
    percent_with(text, UPPER, true)
}

fn percent_with(text: &str, digits: &[u8; 16], plus: bool) -> Encoded {
    let mut out = Zeroizing::new(Vec::with_capacity(text.len() * 3));
    for &byte in text.as_bytes() {
        match byte {
            _ if is_unreserved(byte) => out.push(byte),
            b' ' if plus => out.push(b'+'),
            _ => out.extend_from_slice(&[b'%', digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]),
        }
    }
    out
}

pub fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

pub fn hex_digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [LOWER[usize::from(byte >> 4)] as char, LOWER[usize::from(byte & 15)] as char])
        .collect()
}

/// Decodes what is well-formed and leaves the rest as it is.
pub fn percent_decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match percent_pair(text, at) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

/// The byte that `%XX` at this place stands for.
pub fn percent_pair(text: &[u8], at: usize) -> Option<u8> {
    match text.get(at..at + 3)? {
        [b'%', high, low] => Some(hex_digit(*high)? << 4 | hex_digit(*low)?),
        _ => None,
    }
}

pub fn base64(bytes: &[u8]) -> Zeroizing<String> {
    Zeroizing::new(BASE64.encode(bytes))
}

pub fn base64_decode(text: &[u8]) -> Option<Encoded> {
    BASE64.decode(text).ok().map(Zeroizing::new)
}

/// The characters that Base64 of any text holds that has these bytes inside, for each of the three alignments.
pub fn base64_inside(bytes: &[u8]) -> [Encoded; 3] {
    [0, 1, 2].map(|before| {
        let mut padded = Zeroizing::new(vec![0; before]);
        padded.extend_from_slice(bytes);
        let text = base64(&padded);
        // The first characters depend on what stands before, the last ones on what comes after.
        let from = [0, 2, 3][before];
        let until = padded.len() * 8 / 6;
        Zeroizing::new(text.as_bytes()[from.min(until)..until].to_vec())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_agrees_with_a_json_reader() {
        let text = "a\"b\\c\n\r\t\u{8}\u{c}\u{1}/é💡";
        for slash in [false, true] {
            let quoted = format!("\"{}\"", String::from_utf8(json(text, slash).to_vec()).unwrap());
            assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
        }
    }

    #[test]
    fn percent_is_undone_by_decoding() {
        let text = "a b/c?d&e=%+é~";
        assert_eq!(&percent(text)[..], b"a%20b%2Fc%3Fd%26e%3D%25%2B%C3%A9~");
        assert_eq!(percent_decode(&percent_lower(text)), text.as_bytes());
        assert_eq!(percent_decode(b"100%"), b"100%");
        assert_eq!(&form("a b")[..], b"a+b");
    }

    #[test]
    fn base64_inside_is_found_at_every_alignment() {
        for before in 0..7 {
            for after in 0..7 {
                let whole = format!("{}{}{}", "u".repeat(before), "s3cret-value", ":".repeat(after));
                let text = base64(whole.as_bytes());
                let inside = base64_inside(b"s3cret-value");
                assert!(inside.iter().any(|core| memchr::memmem::find(text.as_bytes(), core).is_some()), "{whole}");
            }
        }
    }
}
