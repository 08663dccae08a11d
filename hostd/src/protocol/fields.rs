//! The fields of a request, strictly: each is taken once by its name and type, and none may be left. A fault names its field.

use std::collections::BTreeMap;
use std::convert::TryFrom;
use std::path::PathBuf;
use std::str::FromStr;

use json::Value;
use sys::{Code, Error};

pub struct Fields(BTreeMap<String, Value>);

/// A process by its number and the tick at which it started (field 22 of `/proc/<pid>/stat`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Process {
    pub pid: u32,
    pub start: u64,
}

impl Fields {
    pub fn parse(text: &[u8]) -> Result<Fields, Error> {
        let text = std::str::from_utf8(text).map_err(|_| refused("the request is no text"))?;
        match json::parse(text).map_err(|fault| refused(format!("the request is not JSON: {fault}")))? {
            Value::Object(fields) => Ok(Fields(fields)),
            _ => Err(refused("the request is no object")),
        }
    }

    pub fn text(&mut self, name: &str) -> Result<String, Error> {
        match self.take(name)? {
            Value::Text(text) => no_zero(name, text),
            _ => Err(refused(format!("{name}: must be a string"))),
        }
    }

    pub fn texts(&mut self, name: &str) -> Result<Vec<String>, Error> {
        let texts = match self.take(name)? {
            Value::List(items) => items,
            _ => return Err(refused(format!("{name}: must be a list"))),
        };
        let text = |item| match item {
            Value::Text(text) => no_zero(name, text),
            _ => Err(refused(format!("{name}: must be a list of strings"))),
        };
        texts.into_iter().map(text).collect()
    }

    /// An absolute path.
    pub fn path(&mut self, name: &str) -> Result<PathBuf, Error> {
        absolute(name, self.text(name)?)
    }

    pub fn paths(&mut self, name: &str) -> Result<Vec<PathBuf>, Error> {
        self.texts(name)?.into_iter().map(|text| absolute(name, text)).collect()
    }

    /// One absolute path or more.
    pub fn some_paths(&mut self, name: &str) -> Result<Vec<PathBuf>, Error> {
        let paths = self.paths(name)?;
        match paths.is_empty() {
            true => Err(refused(format!("{name}: must not be empty"))),
            false => Ok(paths),
        }
    }

    pub fn optional_path(&mut self, name: &str) -> Result<Option<PathBuf>, Error> {
        self.has(name).then(|| self.path(name)).transpose()
    }

    pub fn number<N: TryFrom<u64>>(&mut self, name: &str) -> Result<N, Error> {
        let number = self.take(name)?.as_integer().and_then(|number| N::try_from(number).ok());
        number.ok_or_else(|| refused(format!("{name}: must be an integer in range")))
    }

    pub fn flag(&mut self, name: &str) -> Result<bool, Error> {
        self.take(name)?.as_bool().ok_or_else(|| refused(format!("{name}: must be a boolean")))
    }

    /// Text of another form, such as an address.
    pub fn parsed<T: FromStr>(&mut self, name: &str) -> Result<T, Error> {
        self.text(name)?.parse().map_err(|_| refused(format!("{name}: has another form")))
    }

    /// The fields of an object.
    pub fn object(&mut self, name: &str) -> Result<Fields, Error> {
        match self.take(name)? {
            Value::Object(fields) => Ok(Fields(fields)),
            _ => Err(refused(format!("{name}: must be an object"))),
        }
    }

    pub fn objects(&mut self, name: &str) -> Result<Vec<Fields>, Error> {
        let items = match self.take(name)? {
            Value::List(items) => items,
            _ => return Err(refused(format!("{name}: must be a list"))),
        };
        let object = |item| match item {
            Value::Object(fields) => Ok(Fields(fields)),
            _ => Err(refused(format!("{name}: must be a list of objects"))),
        };
        items.into_iter().map(object).collect()
    }

    pub fn process(&mut self) -> Result<Process, Error> {
        let mut fields = self.object("process")?;
        let process = Process { pid: fields.number("pid")?, start: fields.number("startTicks")? };
        fields.finish().map(|()| process)
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Refuses fields that were not taken.
    pub fn finish(self) -> Result<(), Error> {
        match self.0.keys().next() {
            Some(name) => Err(refused(format!("{name}: unknown field"))),
            None => Ok(()),
        }
    }

    pub fn without(mut self, name: &str) -> Fields {
        self.0.remove(name);
        self
    }

    /// The text of these fields as a request to another process of this program.
    pub fn into_request(mut self) -> String {
        self.0.insert("protocol".into(), super::VERSION.into());
        let mut text = String::new();
        Value::Object(self.0).write(&mut text);
        text
    }

    fn take(&mut self, name: &str) -> Result<Value, Error> {
        self.0.remove(name).ok_or_else(|| refused(format!("{name}: is required")))
    }
}

pub fn refused(message: impl Into<String>) -> Error {
    Error::with(Code::InvalidRequest, message)
}

fn no_zero(name: &str, text: String) -> Result<String, Error> {
    match text.contains('\0') {
        true => Err(refused(format!("{name}: must not hold a NUL"))),
        false => Ok(text),
    }
}

fn absolute(name: &str, text: String) -> Result<PathBuf, Error> {
    match text.starts_with('/') {
        true => Ok(PathBuf::from(text)),
        false => Err(refused(format!("{name}: must be absolute"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::parse(text.as_bytes()).expect("parses")
    }

    #[test]
    fn fields_are_taken_once_by_name_and_none_may_be_left() {
        let mut given = fields(r#"{"target":"/t","lowers":["/a","/b"]}"#);
        assert_eq!(given.path("target").ok(), Some(PathBuf::from("/t")));
        assert_eq!(given.path("target").expect_err("taken").to_string(), "target: is required");
        assert_eq!(given.some_paths("lowers").ok().map(|paths| paths.len()), Some(2));
        assert!(given.finish().is_ok());
        assert_eq!(fields(r#"{"x":1}"#).finish().expect_err("left").to_string(), "x: unknown field");
    }

    #[test]
    fn other_types_relative_paths_and_numbers_out_of_range_are_refused_by_name() {
        let text = r#"{"a":1,"b":"t","c":[],"d":["/a",1],"e":4294967296,"f":"a\u0000","g":-1,"h":null}"#;
        let faults = [
            fields(text).text("a").err(),
            fields(text).path("b").err(),
            fields(text).some_paths("c").err(),
            fields(text).paths("d").err(),
            fields(text).number::<u32>("e").err(),
            fields(text).text("f").err(),
            fields(text).number::<u64>("g").err(),
            fields(text).optional_path("h").err(),
        ];
        for (fault, name) in faults.iter().zip("abcdefgh".chars()) {
            let fault = fault.as_ref().expect("refused");
            assert!(fault.code == Code::InvalidRequest && fault.to_string().starts_with(name), "{fault}");
        }
        for text in ["", "1", "[]", "{", "\u{0}"] {
            assert!(Fields::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(Fields::parse(&[0xff]).is_err());
    }
}
