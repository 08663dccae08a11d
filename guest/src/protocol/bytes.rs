//! Names of files on the wire: any bytes but `/` and NUL. A name that is no UTF-8 has a printable form and its bytes in base64.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use json::Value;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of a name; each byte that is no part of UTF-8 is `\xff`.
pub fn printable(name: impl AsRef<OsStr>) -> String {
    let mut rest = name.as_ref().as_bytes();
    let mut out = String::new();
    loop {
        match std::str::from_utf8(rest) {
            Ok(text) => {
                out.push_str(text);
                return out;
            }
            Err(error) => {
                let (good, bad) = rest.split_at(error.valid_up_to());
                out.push_str(&String::from_utf8_lossy(good));
                let count = error.error_len().unwrap_or(bad.len());
                for byte in &bad[..count] {
                    let _ = write!(out, "\\x{:02x}", byte);
                }
                rest = &bad[count..];
            }
        }
    }
}

/// The fields `key` and, for a name that is no UTF-8, `keyBase64`.
pub fn fields(key: &'static str, key_base64: &'static str, name: impl AsRef<OsStr>) -> Vec<(&'static str, Value)> {
    let name = name.as_ref();
    let mut fields = vec![(key, Value::Text(printable(name)))];
    if name.to_str().is_none() {
        fields.push((key_base64, Value::Text(encode(name.as_bytes()))));
    }
    fields
}

/// RFC 4648 § 4.
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity((bytes.len() + 2) / 3 * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for index in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * index)) as usize & 63];
            out.push(if index <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

/// `None` for anything but base64 with its padding.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    if text.len() % 4 != 0 || text.len() - digits.len() > 2 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in digits.chunks(4) {
        let mut word = 0u32;
        for byte in chunk {
            word = word << 6 | DIGITS.iter().position(|digit| digit == byte)? as u32;
        }
        word <<= 6 * (4 - chunk.len());
        out.extend_from_slice(&word.to_be_bytes()[1..chunk.len()]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_they_were_before_base64() {
        for (bytes, text) in [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\xfe", "//4=")]
        {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).as_deref(), Some(bytes));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
        for text in ["Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Z g=", "Zm9v\n", "Zm-v"] {
            assert_eq!(decode(text), None, "{}", text);
        }
    }

    #[test]
    fn names_that_differ_in_a_bad_byte_print_differently() {
        let name = |bytes: &'static [u8]| printable(OsStr::from_bytes(bytes));
        assert_eq!(name("ä\n".as_bytes()), "ä\n");
        assert_eq!((name(b"a\xffb"), name(b"a\xfeb")), ("a\\xffb".to_string(), "a\\xfeb".to_string()));
        assert_eq!((name(b"\xe4\xb8"), name(b"\xf0\x28x")), ("\\xe4\\xb8".to_string(), "\\xf0(x".to_string()));
        assert_eq!(fields("name", "nameBase64", "plain").len(), 1);
        assert_eq!(fields("name", "nameBase64", OsStr::from_bytes(b"\xff"))[1].1, Value::Text("/w==".to_string()));
    }
}
