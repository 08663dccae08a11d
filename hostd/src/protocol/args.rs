//! `--name value` pairs, each name used once unless a command takes several, none left over.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use sys::Error;

pub struct Args {
    pairs: Vec<(String, OsString)>,
}

impl Args {
    pub fn parse(mut given: impl Iterator<Item = OsString>) -> Result<Args, Error> {
        let mut pairs = Vec::new();
        while let Some(word) = given.next() {
            let name = word.to_str().and_then(|word| word.strip_prefix("--")).map(str::to_owned);
            let name = name.ok_or_else(|| Error::new(format!("expected an option, got {word:?}")))?;
            let value = given.next().ok_or_else(|| Error::new(format!("--{name} needs a value")))?;
            pairs.push((name, value));
        }
        Ok(Args { pairs })
    }

    pub fn all(&mut self, name: &str) -> Vec<OsString> {
        let (taken, kept) = std::mem::take(&mut self.pairs).into_iter().partition(|(key, _)| key == name);
        self.pairs = kept;
        let taken: Vec<(String, OsString)> = taken;
        taken.into_iter().map(|(_, value)| value).collect()
    }

    fn one(&mut self, name: &str) -> Result<OsString, Error> {
        let mut values = self.all(name);
        match (values.pop(), values.is_empty()) {
            (Some(value), true) => Ok(value),
            _ => Err(Error::new(format!("--{name} is needed exactly once"))),
        }
    }

    /// An absolute path.
    pub fn path(&mut self, name: &str) -> Result<PathBuf, Error> {
        absolute(name, self.one(name)?)
    }

    /// One or more of them.
    pub fn paths(&mut self, name: &str) -> Result<Vec<PathBuf>, Error> {
        let paths: Vec<PathBuf> =
            self.all(name).into_iter().map(|value| absolute(name, value)).collect::<Result<_, _>>()?;
        if paths.is_empty() {
            return Err(Error::new(format!("--{name} is needed at least once")));
        }
        Ok(paths)
    }

    /// None or more of them.
    pub fn optional_paths(&mut self, name: &str) -> Result<Vec<PathBuf>, Error> {
        self.all(name).into_iter().map(|value| absolute(name, value)).collect()
    }

    pub fn text(&mut self, name: &str) -> Result<String, Error> {
        self.one(name)?.into_string().map_err(|value| Error::new(format!("--{name} {value:?} is not text")))
    }

    pub fn optional_text(&mut self, name: &str) -> Result<Option<String>, Error> {
        match self.pairs.iter().any(|(key, _)| key == name) {
            true => self.text(name).map(Some),
            false => Ok(None),
        }
    }

    /// An absolute path, if any.
    pub fn optional_path(&mut self, name: &str) -> Result<Option<PathBuf>, Error> {
        self.optional_text(name)?.map(|text| absolute(name, text.into())).transpose()
    }

    pub fn number<T: FromStr>(&mut self, name: &str) -> Result<T, Error> {
        let text = self.text(name)?;
        text.parse().map_err(|_| Error::new(format!("--{name} {text} is not a number in range")))
    }

    /// Of a command that takes one path and nothing else.
    pub fn only_path(mut self, name: &str) -> Result<PathBuf, Error> {
        let path = self.path(name)?;
        self.finish()?;
        Ok(path)
    }

    pub fn finish(&self) -> Result<(), Error> {
        match self.pairs.first() {
            Some((name, _)) => Err(Error::new(format!("unknown option --{name}"))),
            None => Ok(()),
        }
    }
}

fn absolute(name: &str, value: OsString) -> Result<PathBuf, Error> {
    let path = PathBuf::from(value);
    if !path.is_absolute() {
        return Err(Error::new(format!("--{name} {} is not absolute", path.display())));
    }
    Ok(path)
}

/// `START:REST`.
pub fn split_start(text: &str) -> Result<(u32, &str), Error> {
    text.split_once(':')
        .and_then(|(start, rest)| Some((start.parse().ok()?, rest)))
        .ok_or_else(|| Error::new(format!("{text} is not START:VALUE")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> Result<Args, Error> {
        Args::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn pairs_are_taken_by_name_and_nothing_may_be_left() {
        let mut given = args(&["--target", "/t", "--lower", "0:/a", "--lower", "7:/b"]).expect("parses");
        assert_eq!(given.path("target").ok(), Some(PathBuf::from("/t")));
        assert!(given.finish().is_err());
        assert_eq!(given.all("lower").len(), 2);
        assert!(given.finish().is_ok());
    }

    #[test]
    fn a_relative_path_a_missing_value_and_a_repeat_are_refused() {
        assert!(args(&["--target"]).is_err());
        assert!(args(&["target", "/t"]).is_err());
        assert!(args(&["--target", "t"]).expect("parses").path("target").is_err());
        assert!(args(&["--target", "/a", "--target", "/b"]).expect("parses").path("target").is_err());
        assert!(args(&["--target", "/a", "--target", "b"]).expect("parses").paths("target").is_err());
        assert!(args(&[]).expect("parses").paths("target").is_err());
    }

    #[test]
    fn a_start_is_a_32_bit_number() {
        assert_eq!(split_start("1000000000:65536").ok(), Some((1_000_000_000, "65536")));
        assert!(split_start("4294967296:/x").is_err());
        assert!(split_start("-1:/x").is_err());
        assert!(split_start("/x").is_err());
    }
}
