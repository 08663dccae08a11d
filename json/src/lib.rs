//! JSON as the protocols need it: values and their text. `parse` reads them, within limits, from a connection.

#![forbid(unsafe_code)]

mod parse;

pub use parse::parse;
use std::collections::BTreeMap;

/// Integers up to this are exact in the numbers of JSON.
const INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Object(BTreeMap<String, Value>),
}

impl Value {
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Object(fields) => fields.get(key),
            _ => None,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// A whole number from 0 to 2^53 - 1.
    pub fn as_integer(&self) -> Option<u64> {
        match self {
            Value::Number(number) if *number >= 0.0 && *number <= INTEGER_MAX && number.fract() == 0.0 => {
                Some(*number as u64)
            }
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// Appends the JSON text, without a line end and without spaces.
    pub fn write(&self, out: &mut String) {
        match self {
            Value::Null => out.push_str("null"),
            Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Value::Number(number) if number.fract() == 0.0 && number.abs() <= INTEGER_MAX => {
                out.push_str(&(*number as i64).to_string())
            }
            Value::Number(number) if number.is_finite() => out.push_str(&number.to_string()),
            Value::Number(_) => out.push_str("null"),
            Value::Text(text) => write_text(text, out),
            Value::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Value::Object(fields) => {
                out.push('{');
                for (index, (key, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_text(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_string())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number as f64)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

/// `object([("ok", true.into())])`
pub fn object<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    let mut map = BTreeMap::new();
    for (key, value) in fields {
        map.insert(key.to_string(), value);
    }
    Value::Object(map)
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other if (other as u32) < 0x20 || other as u32 == 0x7f => out.push_str(&format!("\\u{:04x}", other as u32)),
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(text: &str) -> String {
        let mut out = String::new();
        parse(text).unwrap().write(&mut out);
        out
    }

    #[test]
    fn values_come_back_as_they_went() {
        for text in [
            "null",
            "true",
            "false",
            "0",
            "-1",
            "1.5",
            "9007199254740991",
            "\"\"",
            "[]",
            "{}",
            "[1,[2,[]]]",
            "{\"a\":{\"b\":[null,true]},\"z\":\"\\\"\\\\\\n\\t\\u0001\"}",
            "\"päth 🐚\"",
        ] {
            assert_eq!(round(text), text);
        }
        assert_eq!(round(" { \"a\" : 1e2 , \"a\" : 2 } \n"), "{\"a\":2}");
        assert_eq!(parse("\"\\ud83d\\udc1a\\u00e9\\/\"").unwrap().as_text(), Some("🐚é/"));
    }

    #[test]
    fn integers_are_whole_and_in_range() {
        assert_eq!(parse("4096").unwrap().as_integer(), Some(4096));
        for text in ["-1", "0.5", "9007199254740993", "1e300", "\"1\"", "true"] {
            assert_eq!(parse(text).unwrap().as_integer(), None, "{}", text);
        }
    }
}
