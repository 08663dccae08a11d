//! A change of permission bits, as chmod(1) takes it: octal, or symbolic such as `u+x,go=r`.

/// What `umask` takes from a change that names nobody.
const UMASK: u32 = 0o022;
const CHANGES_MAX: usize = 64;

#[derive(Debug)]
pub enum Mode {
    Octal(u32),
    Symbolic(Vec<Change>),
}

#[derive(Debug)]
pub struct Change {
    /// The bits that it is about, or `None` for all but those of the umask.
    who: Option<u32>,
    operator: u8,
    permissions: Vec<u8>,
}

impl Mode {
    /// `None` for what is no mode.
    pub fn parse(text: &str) -> Option<Mode> {
        if text.bytes().next()?.is_ascii_digit() {
            let bits = u32::from_str_radix(text, 8).ok()?;
            return Some(Mode::Octal(bits)).filter(|_| bits <= 0o7777);
        }
        let mut changes = Vec::new();
        for clause in text.split(',') {
            let bytes = clause.as_bytes();
            let count = bytes.iter().take_while(|byte| b"ugoa".contains(byte)).count();
            let who = bytes[..count].iter().fold(None, |who, byte| Some(who.unwrap_or(0) | bits_of(*byte)));
            let mut rest = &bytes[count..];
            if rest.is_empty() {
                return None;
            }
            while let Some((&operator, more)) = rest.split_first() {
                let count = more.iter().take_while(|byte| !b"+-=".contains(byte)).count();
                let permissions = more[..count].to_vec();
                let is_copy = matches!(permissions[..], [b'u' | b'g' | b'o']);
                let is_list = permissions.iter().all(|byte| b"rwxXst".contains(byte));
                if !b"+-=".contains(&operator) || !(is_copy || is_list) || changes.len() >= CHANGES_MAX {
                    return None;
                }
                changes.push(Change { who, operator, permissions });
                rest = &more[count..];
            }
        }
        Some(Mode::Symbolic(changes))
    }

    /// The permission bits of a file, or a folder, that has had `mode`.
    pub fn apply(&self, mode: u32, is_folder: bool) -> u32 {
        match self {
            Mode::Octal(bits) => *bits,
            Mode::Symbolic(changes) => changes.iter().fold(mode, |mode, change| change.apply(mode, is_folder)),
        }
    }
}

impl Change {
    fn apply(&self, mode: u32, is_folder: bool) -> u32 {
        let bits = self.permissions.iter().fold(0, |bits, byte| {
            bits | match byte {
                b'r' => 0o444,
                b'w' => 0o222,
                b'x' => 0o111,
                b'X' if is_folder || mode & 0o111 != 0 => 0o111,
                b's' => 0o6000,
                b't' => 0o1000,
                b'u' => (mode >> 6 & 7) * 0o111,
                b'g' => (mode >> 3 & 7) * 0o111,
                b'o' => (mode & 7) * 0o111,
                _ => 0,
            }
        });
        let bits = bits & self.who.unwrap_or(0o7777 & !UMASK);
        match self.operator {
            b'+' => mode | bits,
            b'-' => mode & !bits,
            _ => mode & !self.who.unwrap_or(0o7777) | bits,
        }
    }
}

fn bits_of(who: u8) -> u32 {
    match who {
        b'u' => 0o4700,
        b'g' => 0o2070,
        b'o' => 0o1007,
        _ => 0o7777,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_mean_what_chmod_makes_of_them() {
        for (text, before, file, folder) in [
            ("755", 0o600, 0o755, 0o755),
            ("04755", 0o600, 0o4755, 0o4755),
            ("0", 0o777, 0, 0),
            ("u+x,go=r", 0o600, 0o744, 0o744),
            ("a=rX", 0o640, 0o444, 0o555),
            ("+X", 0o744, 0o755, 0o755),
            ("+w", 0o444, 0o644, 0o644),
            ("a+w", 0o444, 0o666, 0o666),
            ("=rw", 0o777, 0o644, 0o644),
            ("g=u", 0o640, 0o660, 0o660),
            ("o=g-w", 0o670, 0o675, 0o675),
            ("u=rwx,g=,o=", 0o4644, 0o700, 0o700),
            ("ug+s,+t", 0o755, 0o7755, 0o7755),
            ("go-rwx", 0o7755, 0o7700, 0o7700),
            ("u+", 0o640, 0o640, 0o640),
        ] {
            let mode = Mode::parse(text).unwrap();
            assert_eq!((mode.apply(before, false), mode.apply(before, true)), (file, folder), "{}", text);
        }
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in
            ["", "8", "99", "10000", "0x1", "rwx", "u", "u+q", "u+x,", ",u+x", "u+gx", "-1", "u=ug", "ü+x", "7 "]
        {
            let parsed = Mode::parse(text);
            assert!(parsed.is_none(), "{} is {:?}", text, parsed);
        }
        assert!(Mode::parse(&"u+x,".repeat(100_000)).is_none());
    }
}
