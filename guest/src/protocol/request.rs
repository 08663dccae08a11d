//! Typed access to the fields of a request line; each fault names its field.

use crate::protocol::bytes;
use crate::protocol::fault::{Fault, Outcome};
use json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

pub struct Request(pub Value);

/// Of the wire.
pub const INTEGER_MAX: u64 = (1 << 53) - 1;
const PATH_BYTES_MAX: usize = 4095;
const PROCESS_ID_BYTES_MAX: usize = 128;

impl Request {
    pub fn present(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| **value != Value::Null)
    }

    pub fn text(&self, key: &str) -> Outcome<&str> {
        self.optional_text(key)?.ok_or_else(|| Fault::invalid(format!("{}: is required", key)))
    }

    pub fn optional_text(&self, key: &str) -> Outcome<Option<&str>> {
        let value = match self.present(key) {
            Some(value) => value,
            None => return Ok(None),
        };
        let text = value.as_text().ok_or_else(|| Fault::invalid(format!("{}: must be a string", key)))?;
        no_zero(key, text).map(Some)
    }

    pub fn flag(&self, key: &str) -> Outcome<bool> {
        match self.present(key) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| Fault::invalid(format!("{}: must be a boolean", key))),
        }
    }

    pub fn integer(&self, key: &str, min: u64, max: u64) -> Outcome<u64> {
        self.optional_integer(key, min, max)?.ok_or_else(|| Fault::invalid(format!("{}: is required", key)))
    }

    pub fn optional_integer(&self, key: &str, min: u64, max: u64) -> Outcome<Option<u64>> {
        let value = match self.present(key) {
            Some(value) => value,
            None => return Ok(None),
        };
        match value.as_integer() {
            Some(number) if number >= min && number <= max => Ok(Some(number)),
            _ => Err(Fault::invalid(format!("{}: must be an integer from {} to {}", key, min, max))),
        }
    }

    pub fn process_id(&self) -> Outcome<&str> {
        let id = self.text("id")?;
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if id.is_empty() || id.len() > PROCESS_ID_BYTES_MAX || !id.bytes().all(legal) {
            return Err(Fault::invalid("id: must be 1 to 128 letters, digits, '_', '.' or '-'"));
        }
        Ok(id)
    }

    pub fn path(&self) -> Outcome<PathBuf> {
        self.path_of("path", "pathBase64")
    }

    /// An absolute path, as text or as bytes.
    pub fn path_of(&self, key: &str, key_base64: &str) -> Outcome<PathBuf> {
        absolute_path(key, self.bytes_of(key, key_base64)?)
    }

    /// A name, as text or as bytes.
    pub fn bytes_of(&self, key: &str, key_base64: &str) -> Outcome<Vec<u8>> {
        match self.optional_text(key_base64)? {
            None => Ok(self.text(key)?.as_bytes().to_vec()),
            Some(text) => bytes::decode(text).ok_or_else(|| Fault::invalid(format!("{}: must be base64", key_base64))),
        }
    }
}

pub fn no_zero<'a>(key: &str, text: &'a str) -> Outcome<&'a str> {
    if text.contains('\0') {
        return Err(Fault::invalid(format!("{}: must not hold a NUL", key)));
    }
    Ok(text)
}

pub fn absolute_path(key: &str, path: impl Into<Vec<u8>>) -> Outcome<PathBuf> {
    let path = path.into();
    if path.first() != Some(&b'/') {
        return Err(Fault::invalid(format!("{}: must be absolute", key)));
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(Fault::invalid(format!("{}: is longer than {} bytes", key, PATH_BYTES_MAX)));
    }
    if path.contains(&0) {
        return Err(Fault::invalid(format!("{}: must not hold a NUL", key)));
    }
    Ok(PathBuf::from(OsString::from_vec(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use json::parse;

    fn request(text: &str) -> Request {
        Request(parse(text).unwrap())
    }

    #[test]
    fn fields_are_checked_by_type_and_range() {
        let it = request(r#"{"a":"x","n":5,"b":true,"z":"\u0000","null":null}"#);
        assert_eq!(it.text("a").unwrap(), "x");
        assert!(
            it.text("n").is_err() && it.text("missing").is_err() && it.text("z").is_err() && it.text("null").is_err()
        );
        assert_eq!(it.integer("n", 1, 5).unwrap(), 5);
        assert!(it.integer("n", 6, 9).is_err() && it.integer("a", 0, 9).is_err());
        assert!(it.flag("b").unwrap() && !it.flag("missing").unwrap() && it.flag("a").is_err());
    }

    #[test]
    fn paths_are_absolute_and_bounded() {
        assert_eq!(absolute_path("path", "/a/../b").unwrap(), PathBuf::from("/a/../b"));
        for path in ["", "a", "./a", "~/a", "/a\0b"] {
            assert_eq!(absolute_path("path", path).unwrap_err().code, "invalid_request", "{:?}", path);
        }
        assert!(absolute_path("path", format!("/{}", "a".repeat(PATH_BYTES_MAX))).is_err());
    }

    #[test]
    fn a_path_may_come_as_bytes() {
        let it = request(r#"{"pathBase64":"L2EK/w==","fromBase64":"L2E","toBase64":"YQ=="}"#);
        assert_eq!(it.path().unwrap().into_os_string().into_vec(), b"/a\n\xff");
        assert!(it.path_of("from", "fromBase64").is_err() && it.path_of("to", "toBase64").is_err());
        assert!(it.path_of("x", "xBase64").is_err());
    }

    #[test]
    fn process_ids_are_plain_names() {
        assert!(request(r#"{"id":"es-1.a_B"}"#).process_id().is_ok());
        for id in ["", "a b", "a/b", "ä"] {
            assert!(request(&format!(r#"{{"id":"{}"}}"#, id)).process_id().is_err());
        }
    }
}
