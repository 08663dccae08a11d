//! Paths of requests against the patterns of rules. Servers disagree about odd spellings (`%2f`, `\`, `//`, double encoding), so a path is judged
//! in each of its readings: a rule that allows must hold for all of them, a rule that denies for any.

/// The readings of a path as sent, without its query.
pub struct Readings(Vec<Vec<u8>>);

impl Readings {
    pub fn of(path: &str) -> Readings {
        let sent = path.split(['?', '#']).next().unwrap_or_default().as_bytes();
        let once = decode(sent);
        let twice = decode(&once);
        let slashed: Vec<u8> = twice.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect();
        let mut readings = vec![resolve(&once, false), resolve(&once, true), resolve(&slashed, true)];
        readings.dedup();
        Readings(readings)
    }

    pub fn all_match(&self, patterns: &[String]) -> bool {
        self.0.iter().all(|reading| matches_one(patterns, reading))
    }

    pub fn any_matches(&self, patterns: &[String]) -> bool {
        self.0.iter().any(|reading| matches_one(patterns, reading))
    }
}

fn matches_one(patterns: &[String], path: &[u8]) -> bool {
    patterns.iter().any(|pattern| matches(pattern.as_bytes(), path))
}

/// `*` is any run of bytes, the empty one too. Time is bounded by the product of the lengths.
fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let (mut at, mut done) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while done < path.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, done));
            at += 1;
        } else if pattern.get(at) == Some(&path[done]) {
            at += 1;
            done += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            at = after;
            done = from + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Percent-decodes once; what is no escape stays.
fn decode(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let escape = (text[at] == b'%').then(|| Some(digit(*text.get(at + 1)?)? << 4 | digit(*text.get(at + 2)?)?));
        match escape.flatten() {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(text[at]);
                at += 1;
            }
        }
    }
    decoded
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|value| value as u8)
}

/// Takes dot segments out (RFC 3986 § 5.2.4), and empty segments if `collapse`.
fn resolve(path: &[u8], collapse: bool) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut folder = false;
    let inner = path.strip_prefix(b"/").unwrap_or(path);
    for segment in inner.split(|byte| *byte == b'/') {
        folder = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"." => {}
            b".." => drop(kept.pop()),
            b"" if collapse => {}
            _ => {
                // The empty segment at the end is the slash that `folder` puts back.
                kept.push(segment);
            }
        }
    }
    if folder && kept.last().is_some_and(|last| last.is_empty()) {
        kept.pop();
    }
    let mut resolved = Vec::with_capacity(path.len() + 1);
    for segment in &kept {
        resolved.push(b'/');
        resolved.extend_from_slice(segment);
    }
    if folder || resolved.is_empty() {
        resolved.push(b'/');
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(pattern: &str, path: &str) -> bool {
        Readings::of(path).all_match(&[pattern.to_owned()])
    }

    fn denied(pattern: &str, path: &str) -> bool {
        Readings::of(path).any_matches(&[pattern.to_owned()])
    }

    #[test]
    fn a_star_is_any_run() {
        assert!(allowed("/v1/*", "/v1/"));
        assert!(allowed("/v1/*", "/v1/a/b?x=/../.."));
        assert!(allowed("/*/releases/*.gz", "/a/b/releases/x.tar.gz"));
        assert!(!allowed("/v1/*", "/v1"));
        assert!(!allowed("/v1/*", "/v2/v1/"));
        assert!(allowed("*", "/"));
        assert!(allowed("/", ""));
    }

    #[test]
    fn a_path_that_leaves_what_is_allowed_is_not_allowed() {
        for path in [
            "/v1/../admin",
            "/v1/%2e%2e/admin",
            "/v1/..%2fadmin",
            "/v1/%252e%252e/admin",
            "/v1/..\\admin",
            "/v1/x/..//../admin",
        ] {
            assert!(!allowed("/v1/*", path), "{path}");
        }
    }

    #[test]
    fn a_path_that_may_mean_what_is_denied_is_denied() {
        for path in
            ["/admin", "//admin", "/x/../admin", "/%61dmin", "/%2561dmin", "/./admin", "/x%2f..%2fadmin", "\\admin"]
        {
            assert!(denied("/admin", path), "{path}");
        }
        assert!(!denied("/admin", "/administrator"));
    }

    #[test]
    fn dots_are_resolved_as_in_the_rfc() {
        let resolved = |path: &str| String::from_utf8(resolve(path.as_bytes(), false)).unwrap();
        assert_eq!(resolved("/a/b/c/./../../g"), "/a/g");
        assert_eq!(resolved("/../../g"), "/g");
        assert_eq!(resolved("/a/.."), "/");
        assert_eq!(resolved("/a/b/.."), "/a/");
        assert_eq!(resolved("/a//b/"), "/a//b/");
        assert_eq!(resolved("/a/"), "/a/");
    }
}
