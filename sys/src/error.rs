//! What has failed, for the program that reports it: the call, its object and the message of the kernel.

use std::fmt;
use std::io;

/// The closed list of codes by which a caller tells failures apart. `src/protocol/hostd.ts` has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    InvalidRequest,
    UnsupportedProtocol,
    /// EBUSY.
    Busy,
    /// ENOSPC or EDQUOT.
    NoSpace,
    /// EROFS.
    ReadOnly,
    /// What a request names in a sandbox is not what it must be.
    Target,
    /// More than a bound of the request allows.
    TooLarge,
    /// A needed program is missing.
    NotInstalled,
    Failed,
}

impl Code {
    pub fn name(self) -> &'static str {
        match self {
            Code::InvalidRequest => "invalid_request",
            Code::UnsupportedProtocol => "unsupported_protocol",
            Code::Busy => "busy",
            Code::NoSpace => "no_space",
            Code::ReadOnly => "read_only",
            Code::Target => "target",
            Code::TooLarge => "too_large",
            Code::NotInstalled => "not_installed",
            Code::Failed => "failed",
        }
    }

    /// The code of an error of the kernel, or of a reader with a bound.
    pub fn of(error: &io::Error) -> Code {
        match error.raw_os_error() {
            Some(crate::EBUSY) => Code::Busy,
            Some(crate::ENOSPC | crate::EDQUOT) => Code::NoSpace,
            Some(crate::EROFS) => Code::ReadOnly,
            _ if error.get_ref().map_or(false, |inner| inner.is::<TooLarge>()) => Code::TooLarge,
            _ => Code::Failed,
        }
    }
}

/// The error of a reader that has read more than its bound.
#[derive(Debug)]
pub struct TooLarge {
    pub bytes_max: u64,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {} bytes", self.bytes_max)
    }
}

impl std::error::Error for TooLarge {}

impl From<TooLarge> for io::Error {
    fn from(error: TooLarge) -> io::Error {
        io::Error::new(io::ErrorKind::Other, error)
    }
}

#[derive(Debug)]
pub struct Error {
    pub code: Code,
    message: String,
}

impl Error {
    pub fn new(message: impl Into<String>) -> Error {
        Error::with(Code::Failed, message)
    }

    pub fn with(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into() }
    }

    pub fn io(what: &str, subject: impl fmt::Display, error: io::Error) -> Error {
        Error::with(Code::of(&error), format!("{what} {subject}: {error}"))
    }

    /// The same error with `about` in front.
    pub fn of(self, about: &str) -> Error {
        Error::with(self.code, format!("{about}: {}", self.message))
    }

    pub(crate) fn last(what: &str, subject: impl fmt::Display) -> Error {
        Error::io(what, subject, io::Error::last_os_error())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
