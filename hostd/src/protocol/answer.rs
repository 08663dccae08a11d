//! Answers of `serve`: a frame with one line of JSON, then what a program wrote to standard output and to standard error.

use std::io::{self, Write};

use json::{object, Value};
use sys::Error;

pub enum Status {
    /// With an exit status.
    Exited,
    /// By the signal of that number.
    Signalled,
    /// With an error number.
    NotStarted,
    /// The program wrote more than is read, and was killed.
    TooMuch,
}

impl Status {
    fn name(&self) -> &'static str {
        match self {
            Status::Exited => "exited",
            Status::Signalled => "signalled",
            Status::NotStarted => "not_started",
            Status::TooMuch => "too_much",
        }
    }
}

pub struct Answer {
    pub status: Status,
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Answer {
    /// The answer to a request that this process has carried out itself: what a `perform` process would write.
    pub fn done(result: Result<String, Error>) -> Answer {
        match result {
            Ok(told) => Answer { status: Status::Exited, code: 0, stdout: told.into_bytes(), stderr: vec![] },
            Err(error) => Answer { status: Status::Exited, code: 1, stdout: vec![], stderr: failure(&error).into() },
        }
    }

    pub fn not_started(error: &io::Error) -> Answer {
        let code = error.raw_os_error().unwrap_or(0);
        Answer { status: Status::NotStarted, code, stdout: vec![], stderr: vec![] }
    }

    pub fn write(&self, id: u32, output: &mut impl Write) -> io::Result<()> {
        let head = object([
            ("id", u64::from(id).into()),
            ("status", self.status.name().into()),
            ("code", Value::Number(self.code.into())),
            ("stdoutBytes", (self.stdout.len() as u64).into()),
        ]);
        write_frame(output, &head, &[&self.stdout, &self.stderr])
    }
}

/// One line of JSON, and bytes that follow it.
pub fn write_frame(output: &mut impl Write, head: &Value, tail: &[&[u8]]) -> io::Result<()> {
    let line = line(head);
    let length = line.len() + tail.iter().map(|part| part.len()).sum::<usize>();
    let mut frame = Vec::with_capacity(4 + length);
    frame.extend_from_slice(&(length as u32).to_be_bytes());
    frame.extend_from_slice(line.as_bytes());
    tail.iter().for_each(|part| frame.extend_from_slice(part));
    output.write_all(&frame)?;
    output.flush()
}

/// What this program is, for the greeting.
pub fn greeting() -> Value {
    object([("protocol", super::VERSION.into()), ("version", env!("CARGO_PKG_VERSION").into())])
}

/// A line for standard error.
pub fn failure(error: &Error) -> String {
    line(&object([("code", error.code.name().into()), ("message", Value::Text(error.to_string()))]))
}

pub fn line(value: &Value) -> String {
    let mut text = String::new();
    value.write(&mut text);
    text.push('\n');
    text
}
