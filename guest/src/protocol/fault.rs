//! Faults for the client: a code of the protocol and a message for a person.

use std::io;

#[derive(Debug)]
pub struct Fault {
    pub code: &'static str,
    pub message: String,
}

pub type Outcome<T> = Result<T, Fault>;

impl Fault {
    pub fn invalid(message: impl Into<String>) -> Fault {
        Fault { code: "invalid_request", message: message.into() }
    }

    pub fn not_found(message: impl Into<String>) -> Fault {
        Fault { code: "not_found", message: message.into() }
    }

    pub fn conflict(message: impl Into<String>) -> Fault {
        Fault { code: "conflict", message: message.into() }
    }

    pub fn forbidden(message: impl Into<String>) -> Fault {
        Fault { code: "forbidden", message: message.into() }
    }

    pub fn too_large(message: impl Into<String>) -> Fault {
        Fault { code: "too_large", message: message.into() }
    }

    pub fn unavailable(message: impl Into<String>) -> Fault {
        Fault { code: "unavailable", message: message.into() }
    }

    /// An error about a path or id of the client. The code follows from the errno. An unusual one, such as EIO of a special file,
    /// is `invalid_request`: it is never a fault of the guest.
    pub fn of(error: io::Error, about: &str) -> Fault {
        let code = match error.raw_os_error() {
            // ENOENT ESRCH
            Some(2 | 3) => "not_found",
            // EPERM EACCES
            Some(1 | 13) => "forbidden",
            // EBUSY EEXIST ENOTEMPTY ESTALE, and changes that the guest itself detects.
            Some(16 | 17 | 39 | 116) | None => "conflict",
            // EFBIG
            Some(27) => "too_large",
            // ENOSPC EDQUOT
            Some(28 | 122) => "disk_full",
            // EAGAIN ENOMEM ENFILE EMFILE ETIMEDOUT
            Some(11 | 12 | 23 | 24 | 110) => "unavailable",
            Some(_) => "invalid_request",
        };
        Fault { code, message: format!("{}: {}", about, reason(&error)) }
    }

    /// An error about a resource of the guest itself, or about a connection.
    pub fn own(error: io::Error, about: &str) -> Fault {
        Fault::unavailable(format!("{}: {}", about, reason(&error)))
    }
}

/// What an error of a system call means, for a person who may know nothing of errno.
pub fn reason(error: &io::Error) -> String {
    let text = match error.raw_os_error() {
        Some(1) => "this is not permitted",
        Some(2) => "there is no such file or folder",
        Some(5) => "the disk or device cannot be read or written",
        Some(11 | 12) => "the sandbox is out of memory or processes",
        Some(13) => "permission denied",
        Some(16) => "is in use, or something is mounted on it",
        Some(17) => "exists already",
        Some(20) => "a part of the path is no folder",
        Some(21) => "is a folder",
        Some(22) => "the file system does not allow that",
        Some(23 | 24) => "too many files are open",
        Some(26) => "is a program that runs",
        Some(27) => "the file would be too large",
        Some(28) => "the disk is full",
        Some(30) => "the file system is read-only",
        Some(31) => "the file has too many names",
        Some(36) => "the name or the path is too long",
        Some(39) => "the folder is not empty",
        Some(40) => "too many symbolic links, or one that may not be followed",
        Some(95) => "the file system cannot do that",
        Some(116) => "the file was replaced meanwhile",
        Some(122) => "the disk quota is used up",
        Some(number) => return format!("failed with error {} of the system", number),
        None if error.kind() == io::ErrorKind::AlreadyExists => "exists already",
        None => return error.to_string(),
    };
    text.to_string()
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::own(error, "connection")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_errno_is_told() {
        for number in 1..140 {
            let message = Fault::of(io::Error::from_raw_os_error(number), "x").message;
            assert!(!message.contains("os error") && message.len() > 8, "{}", message);
        }
    }

    #[test]
    fn an_error_about_a_name_of_the_client_is_never_a_fault_of_the_guest() {
        for number in 1..200 {
            let code = Fault::of(io::Error::from_raw_os_error(number), "x").code;
            assert!(
                ["not_found", "forbidden", "conflict", "too_large", "disk_full", "unavailable", "invalid_request"]
                    .contains(&code),
                "{}: {}",
                number,
                code
            );
        }
        let code = |number| Fault::of(io::Error::from_raw_os_error(number), "x").code;
        // EIO ENXIO ENODEV EOPNOTSUPP; EPERM EACCES; ENOENT; EFBIG; ENOMEM; ENOSPC EDQUOT
        assert!([5, 6, 19, 95].iter().all(|&number| code(number) == "invalid_request"));
        assert_eq!((code(2), code(27), code(12)), ("not_found", "too_large", "unavailable"));
        assert_eq!((code(1), code(13)), ("forbidden", "forbidden"));
        assert_eq!((code(28), code(122)), ("disk_full", "disk_full"));
    }
}
