//! AWS Signature Version 4, in the header `Authorization` and in presigned URLs.
//!
//! The credential's scope (date, region, service) and the names of the signed headers are the client's; key and signature become real.

use crate::encoding;
use crate::signing::{BodyNeed, Scheme};
use http::header::{HeaderName, HeaderValue, AUTHORIZATION, HOST};
use http::request::Parts;
use http::Uri;
use ring::{digest, hmac};
use zeroize::Zeroizing;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
/// Names in `SignedHeaders`; more is no request of a client library.
const SIGNED_HEADERS_MAX: usize = 100;

pub struct SigV4 {
    placeholder: String,
    access_key: String,
    secret: Zeroizing<String>,
}

/// What the client says of its signature.
struct Claim {
    date: String,
    scope: Scope,
    signed: Vec<String>,
    presigned: bool,
}

struct Scope {
    day: String,
    region: String,
    service: String,
}

impl Scope {
    fn text(&self) -> String {
        format!("{}/{}/{}/aws4_request", self.day, self.region, self.service)
    }

    /// S3 takes a path as it is; the other services encode it once more.
    fn is_s3(&self) -> bool {
        matches!(self.service.as_str(), "s3" | "s3express" | "s3-object-lambda" | "s3-outposts")
    }
}

impl SigV4 {
    pub fn new(placeholder: &str, access_key: &str, secret: &str) -> Self {
        SigV4 {
            placeholder: placeholder.to_owned(),
            access_key: access_key.to_owned(),
            secret: Zeroizing::new(secret.to_owned()),
        }
    }

    /// The scope of a credential of this secret's placeholder, in whose place the key may stand already: it is a secret of its own, which headers get.
    fn scope(&self, credential: &str) -> Option<Scope> {
        let keys = [self.placeholder.as_str(), self.access_key.as_str()];
        let rest = keys.iter().find_map(|key| credential.strip_prefix(*key)?.strip_prefix('/'))?;
        let parts: Vec<&str> = rest.split('/').collect();
        match parts[..] {
            [day, region, service, "aws4_request"] => {
                Some(Scope { day: day.to_owned(), region: region.to_owned(), service: service.to_owned() })
            }
            _ => None,
        }
    }

    fn claim(&self, head: &Parts) -> Option<Claim> {
        self.header_claim(head).or_else(|| self.query_claim(head))
    }

    fn header_claim(&self, head: &Parts) -> Option<Claim> {
        let text = head.headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix(ALGORITHM)?;
        let field = |name: &str| {
            let fields = text.split(',').map(str::trim);
            fields.filter_map(|field| field.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        Some(Claim {
            scope: self.scope(field("Credential")?)?,
            signed: signed_names(field("SignedHeaders")?)?,
            date: head.headers.get(DATE)?.to_str().ok()?.to_owned(),
            presigned: false,
        })
    }

    fn query_claim(&self, head: &Parts) -> Option<Claim> {
        let query = head.uri.query()?;
        let field = |name: &str| {
            let found = pairs(query).find(|(key, _)| *key == name)?;
            String::from_utf8(encoding::percent_decode(found.1.as_bytes())).ok()
        };
        if field("X-Amz-Algorithm")? != ALGORITHM {
            return None;
        }
        Some(Claim {
            scope: self.scope(&field("X-Amz-Credential")?)?,
            signed: signed_names(&field("X-Amz-SignedHeaders")?)?,
            date: field("X-Amz-Date")?,
            presigned: true,
        })
    }

    fn signature(&self, claim: &Claim, canonical: &str) -> String {
        let to_sign = format!("{ALGORITHM}\n{}\n{}\n{}", claim.date, claim.scope.text(), sha256(canonical.as_bytes()));
        let start = Zeroizing::new(format!("AWS4{}", self.secret.as_str()));
        let mut key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, start.as_bytes()), claim.scope.day.as_bytes());
        for part in [claim.scope.region.as_str(), claim.scope.service.as_str(), "aws4_request", &to_sign] {
            key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()), part.as_bytes());
        }
        encoding::hex(key.as_ref())
    }

    fn credential(&self, claim: &Claim) -> String {
        format!("{}/{}", self.access_key, claim.scope.text())
    }

    /// The query with the real key instead of the placeholder; `signature` is left out if there is none yet.
    fn presigned_query(&self, query: &str, claim: &Claim, signature: Option<&str>) -> String {
        let credential = String::from_utf8_lossy(&encoding::percent(&self.credential(claim))).into_owned();
        let signed = String::from_utf8_lossy(&encoding::percent(&claim.signed.join(";"))).into_owned();
        let mut out: Vec<String> = Vec::new();
        for part in query.split('&') {
            match part.split_once('=').map_or(part, |(name, _)| name) {
                "X-Amz-Signature" => {}
                "X-Amz-Credential" => out.push(format!("X-Amz-Credential={credential}")),
                "X-Amz-SignedHeaders" => out.push(format!("X-Amz-SignedHeaders={signed}")),
                _ => out.push(part.to_owned()),
            }
        }
        out.extend(signature.map(|signature| format!("X-Amz-Signature={signature}")));
        out.join("&")
    }
}

impl Scheme for SigV4 {
    fn applies(&self, head: &Parts) -> bool {
        let header = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let by_header = header.is_some_and(|text| {
            let names = |key: &str| text.contains(&format!("Credential={key}/"));
            text.starts_with(ALGORITHM) && (names(&self.placeholder) || names(&self.access_key))
        });
        by_header || self.query_claim(head).is_some()
    }

    fn body_need(&self, head: &Parts) -> Result<BodyNeed, String> {
        let claim =
            self.claim(head).ok_or("the signature is not one of AWS4-HMAC-SHA256 with x-amz-date and SignedHeaders")?;
        if claim.date.len() != 16 || !claim.date.starts_with(&claim.scope.day) {
            return Err("the date of the signature is not that of its credential".to_owned());
        }
        match head.headers.get(CONTENT_SHA256).map(HeaderValue::as_bytes) {
            Some(text) if text == UNSIGNED.as_bytes() || text == UNSIGNED_TRAILER.as_bytes() => Ok(BodyNeed::Nothing),
            Some(text) if text.starts_with(b"STREAMING-") => Err(
                "a body whose chunks are signed cannot be signed anew: turn chunked signing off, or send the checksum as an unsigned trailer \
                 (STREAMING-UNSIGNED-PAYLOAD-TRAILER)"
                    .to_owned(),
            ),
            Some(_) => Ok(BodyNeed::IfChanged),
            None if claim.presigned && claim.scope.is_s3() => Ok(BodyNeed::Nothing),
            None => Ok(BodyNeed::Whole),
        }
    }

    fn sign(&self, head: &mut Parts, host: &str, body: Option<&[u8]>, changed: bool) -> Result<(), String> {
        let mut claim = self.claim(head).ok_or("the signature cannot be read")?;
        if let Some(body) = body.filter(|_| changed && self.body_need(head) == Ok(BodyNeed::IfChanged)) {
            let hash = HeaderValue::try_from(sha256(body)).map_err(|error| error.to_string())?;
            head.headers.insert(CONTENT_SHA256, hash);
        }
        let payload = match head.headers.get(CONTENT_SHA256) {
            Some(value) => value.to_str().map_err(|_| "x-amz-content-sha256 is not text")?.to_owned(),
            None if claim.presigned && claim.scope.is_s3() => UNSIGNED.to_owned(),
            None => sha256(body.ok_or("the body is too long to be hashed")?),
        };
        // A header that does not go out (hop-by-hop) cannot be signed.
        claim.signed.retain(|name| name == "host" || head.headers.contains_key(name.as_str()));
        let query = head.uri.query().unwrap_or("");
        let query = if claim.presigned { self.presigned_query(query, &claim, None) } else { query.to_owned() };
        let canonical = format!(
            "{}\n{}\n{}\n{}\n{}\n{payload}",
            head.method,
            canonical_path(head.uri.path(), claim.scope.is_s3()),
            canonical_query(&query),
            canonical_headers(head, host, &claim.signed),
            claim.signed.join(";"),
        );
        let signature = self.signature(&claim, &canonical);
        if claim.presigned {
            let query = self.presigned_query(head.uri.query().unwrap_or(""), &claim, Some(&signature));
            let mut uri = std::mem::take(&mut head.uri).into_parts();
            let path = uri.path_and_query.as_ref().map_or("/", |text| text.path());
            uri.path_and_query = Some(format!("{path}?{query}").try_into().map_err(|_| "the URL is not valid")?);
            head.uri = Uri::from_parts(uri).map_err(|_| "the URL is not valid")?;
        } else {
            let text = format!(
                "{ALGORITHM} Credential={}, SignedHeaders={}, Signature={signature}",
                self.credential(&claim),
                claim.signed.join(";"),
            );
            head.headers.insert(AUTHORIZATION, text.try_into().map_err(|_| "the access key is not valid in a header")?);
        }
        Ok(())
    }
}

fn sha256(bytes: &[u8]) -> String {
    encoding::hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn signed_names(text: &str) -> Option<Vec<String>> {
    let mut names: Vec<String> = text.split(';').map(str::to_ascii_lowercase).collect();
    names.sort();
    names.dedup();
    let valid = names.len() <= SIGNED_HEADERS_MAX
        && names.iter().all(|name| HeaderName::from_bytes(name.as_bytes()).is_ok_and(|known| known.as_str() == name));
    valid.then_some(names)
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|part| !part.is_empty()).map(|part| part.split_once('=').unwrap_or((part, "")))
}

fn encode(bytes: &[u8], keep_slash: bool) -> String {
    const UPPER: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        if encoding::is_unreserved(byte) || (keep_slash && byte == b'/') {
            out.push(byte as char);
        } else {
            out.extend(['%', UPPER[usize::from(byte >> 4)] as char, UPPER[usize::from(byte & 15)] as char]);
        }
    }
    out
}

fn canonical_path(path: &str, s3: bool) -> String {
    if s3 {
        return encode(&encoding::percent_decode(path.as_bytes()), true);
    }
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    let folder = path.ends_with(['/', '.']) && matches!(path.rsplit('/').next(), Some("" | "." | ".."));
    let slash = if folder && !kept.is_empty() { "/" } else { "" };
    encode(format!("/{}{slash}", kept.join("/")).as_bytes(), true)
}

fn canonical_query(query: &str) -> String {
    // A plus sign is a space to every service, and client libraries sign it as one.
    let canonical = |text: &str| encode(&encoding::percent_decode(text.replace('+', "%20").as_bytes()), false);
    let mut sorted: Vec<(String, String)> =
        pairs(query).map(|(name, value)| (canonical(name), canonical(value))).collect();
    sorted.sort();
    sorted.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// Each name with its values, runs of spaces as one, and a newline after each.
fn canonical_headers(head: &Parts, host: &str, names: &[String]) -> String {
    let mut out = String::new();
    for name in names {
        out.push_str(name);
        out.push(':');
        let values: Vec<String> = if *name == HOST.as_str() {
            vec![host.to_owned()]
        } else {
            head.headers
                .get_all(name.as_str())
                .iter()
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                .collect()
        };
        let values = values
            .iter()
            .map(|value| value.split([' ', '\t']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "));
        out.push_str(&values.collect::<Vec<_>>().join(","));
        out.push('\n');
    }
    out
}

#[cfg(test)]
#[path = "sigv4_test.rs"]
mod tests;
