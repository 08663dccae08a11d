//! Values in place of placeholders, in requests to the hosts that the secrets are for.

use crate::encoding::{self, Encoded};
use crate::mask::Masks;
use crate::model::{Place, Plan, Secret};
use crate::name;
use crate::replacing::Replacing;
use crate::search::Matcher;
use http::header::{HeaderName, HeaderValue, CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::{request::Parts, HeaderMap, Uri};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// A head with values in it. Servers take far less.
pub const HEAD_BYTES_MAX: usize = 256 * 1024;

/// Where a text stands, so how a value is written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    Header,
    Basic,
    Query,
    Path,
    Json,
    Form,
    Text,
}

const CONTEXTS: usize = 7;

impl Context {
    fn place(self) -> Place {
        match self {
            Context::Header => Place::Header,
            Context::Basic => Place::Basic,
            Context::Query => Place::Query,
            Context::Path => Place::Path,
            Context::Json | Context::Form | Context::Text => Place::Body,
        }
    }

    fn encode(self, text: &str) -> Encoded {
        match self {
            Context::Header | Context::Basic | Context::Text => encoding::raw(text),
            Context::Query | Context::Path => encoding::percent(text),
            Context::Json => encoding::json(text, false),
            Context::Form => encoding::form(text),
        }
    }

    /// How a body of these headers is read; `None`: it is not text, or compressed, and goes out as it is.
    pub fn of_body(headers: &HeaderMap) -> Option<Context> {
        if headers.get_all(CONTENT_ENCODING).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return None;
        }
        let Some(value) = headers.get(CONTENT_TYPE) else { return Some(Context::Text) };
        let kind = value.to_str().ok()?.split(';').next()?.trim().to_ascii_lowercase();
        let (family, name) = kind.split_once('/').unwrap_or((&kind, ""));
        match (family, name) {
            ("", _) => Some(Context::Text),
            ("application", "json" | "x-ndjson" | "ndjson" | "jsonl" | "json-seq" | "x-json") => Some(Context::Json),
            ("application", "x-www-form-urlencoded") => Some(Context::Form),
            ("application", "xml" | "graphql" | "javascript" | "x-javascript" | "ecmascript") => Some(Context::Text),
            ("multipart", "form-data") => Some(Context::Text),
            ("text", "json") => Some(Context::Json),
            ("text", _) => Some(Context::Text),
            _ if name.ends_with("+json") => Some(Context::Json),
            _ if name.ends_with("+xml") => Some(Context::Text),
            _ => None,
        }
    }
}

/// Why a request cannot go out with the values in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A value has bytes that no header can carry.
    Header(HeaderName),
    /// The path or query is no URL any more.
    Url,
    TooLong,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Header(name) => write!(f, "a secret has bytes that the header {name} cannot carry"),
            Fault::Url => f.write_str("the URL is not valid with the secret in it"),
            Fault::TooLong => f.write_str("the request is too long with the secret in it"),
        }
    }
}

/// What went out in one request.
#[derive(Default)]
pub struct Used {
    secrets: BTreeSet<usize>,
    /// Those that may go out in a body that is not known yet.
    possible: BTreeSet<usize>,
    /// Basic credentials as sent and as written by the sandbox.
    credentials: Vec<(Zeroizing<String>, String)>,
}

impl Used {
    pub fn mask_also(&mut self, secrets: Vec<usize>) {
        self.possible.extend(secrets);
    }

    /// All that no response may show.
    pub fn masked(&self) -> impl Iterator<Item = usize> + '_ {
        self.secrets.union(&self.possible).copied()
    }

    pub fn secrets(&self) -> impl Iterator<Item = usize> + '_ {
        self.secrets.iter().copied()
    }
}

struct Table {
    matcher: Arc<Matcher>,
    /// Number of a pattern → index of its secret.
    secret_of: Vec<usize>,
}

struct Held {
    name: String,
    value: Zeroizing<String>,
    placeholders: Vec<String>,
    places: Vec<Place>,
}

/// The secrets of a plan that are for one host.
#[derive(Default)]
pub struct HostSecrets {
    held: Vec<Held>,
    tables: [OnceLock<Table>; CONTEXTS],
}

fn is_for(secret: &Secret, host: &str) -> bool {
    secret.hosts.iter().any(|pattern| name::matches(pattern, host))
}

/// The secrets with a signing scheme for this host.
pub fn signing<'a>(plan: &'a Plan, host: &'a str) -> impl Iterator<Item = &'a Secret> {
    plan.secrets.iter().filter(move |secret| secret.sign.is_some() && is_for(secret, host))
}

impl HostSecrets {
    pub fn new(plan: &Plan, host: &str) -> Self {
        let held = plan.secrets.iter().filter(|secret| is_for(secret, host)).map(|secret| Held {
            name: secret.name.clone(),
            value: Zeroizing::new(secret.value.clone()),
            placeholders: secret.placeholders.clone(),
            places: secret.places.clone(),
        });
        HostSecrets { held: held.collect(), tables: Default::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub fn name(&self, secret: usize) -> &str {
        &self.held[secret].name
    }

    /// The secrets that a body may hold, whether one does or not.
    pub fn of_bodies(&self) -> Vec<usize> {
        (0..self.held.len()).filter(|&index| self.held[index].places.contains(&Place::Body)).collect()
    }

    /// Sees to it that the values do not come back.
    pub fn mask(&self, masks: &mut Masks, secrets: impl Iterator<Item = usize>) {
        for held in secrets.filter_map(|index| self.held.get(index)) {
            masks.add(&held.value, held.placeholders.first().map_or("", String::as_str));
        }
    }

    pub fn mask_credentials(&self, masks: &mut Masks, used: &mut Used) {
        for (sent, written) in used.credentials.drain(..) {
            masks.add_credential(sent, written);
        }
    }

    fn table(&self, context: Context) -> &Table {
        self.tables[context as usize].get_or_init(|| {
            let (mut pairs, mut secret_of) = (Vec::new(), Vec::new());
            for (index, held) in self.held.iter().enumerate().filter(|(_, h)| h.places.contains(&context.place())) {
                for placeholder in held.placeholders.iter().filter(|text| !text.is_empty()) {
                    let written = context.encode(placeholder);
                    let mut forms = vec![placeholder.as_bytes().to_vec()];
                    if written[..] != *placeholder.as_bytes() {
                        forms.push(written.to_vec());
                    }
                    for form in forms {
                        pairs.push((form, context.encode(&held.value)));
                        secret_of.push(index);
                    }
                }
            }
            Table { matcher: Arc::new(Matcher::new(pairs)), secret_of }
        })
    }

    /// Replaces in a whole text; `None`: there is nothing to replace.
    pub fn text(&self, context: Context, text: &[u8], used: &mut Used, max: usize) -> Result<Option<Encoded>, Fault> {
        let table = self.table(context);
        if table.matcher.is_empty() {
            return Ok(None);
        }
        let mut patterns = Vec::new();
        let out = table.matcher.replace_within(text, &mut patterns, max).map_err(|_| Fault::TooLong)?;
        used.secrets.extend(patterns.iter().map(|&pattern| table.secret_of[pattern as usize]));
        Ok(out.map(Zeroizing::new))
    }

    /// Whether a placeholder is in a text.
    pub fn is_in(&self, context: Context, text: &[u8]) -> bool {
        self.table(context).matcher.is_in(text)
    }

    /// The names of the secrets whose placeholders a stream replaced.
    pub fn names_of<'a>(&'a self, context: Context, patterns: &'a [u32]) -> impl Iterator<Item = &'a str> {
        let table = self.table(context);
        patterns.iter().map(|&pattern| self.name(table.secret_of[pattern as usize]))
    }

    /// A replacement of a body as it comes; `None`: no secret is put into bodies.
    pub fn stream(&self, context: Context) -> Option<Replacing> {
        let table = self.table(context);
        (!table.matcher.is_empty()).then(|| Replacing::new(table.matcher.clone()))
    }

    /// Replaces in headers, path and query.
    pub fn head(&self, parts: &mut Parts, used: &mut Used) -> Result<(), Fault> {
        if self.is_empty() {
            return Ok(());
        }
        let mut total = 0;
        for (name, value) in parts.headers.iter_mut() {
            if name != HOST {
                self.header(name, value, used)?;
            }
            total += name.as_str().len() + value.len();
        }
        self.url(parts, used)?;
        total += parts.uri.path_and_query().map_or(0, |text| text.as_str().len());
        if total > HEAD_BYTES_MAX {
            return Err(Fault::TooLong);
        }
        Ok(())
    }

    fn header(&self, name: &HeaderName, value: &mut HeaderValue, used: &mut Used) -> Result<(), Fault> {
        let mut text = self.text(Context::Header, value.as_bytes(), used, HEAD_BYTES_MAX)?;
        if let Some(basic) = self.basic(text.as_ref().map_or(value.as_bytes(), |text| &text[..]), used)? {
            text = Some(basic);
        }
        if let Some(text) = text {
            *value = HeaderValue::from_bytes(&text).map_err(|_| Fault::Header(name.clone()))?;
            value.set_sensitive(true);
        }
        Ok(())
    }

    /// `Basic` credentials, in `Authorization` or any header like it.
    fn basic(&self, value: &[u8], used: &mut Used) -> Result<Option<Encoded>, Fault> {
        let Some((scheme, token)) = value.split_at_checked(6) else { return Ok(None) };
        if !scheme.eq_ignore_ascii_case(b"basic ") || self.table(Context::Basic).matcher.is_empty() {
            return Ok(None);
        }
        let token = token.trim_ascii();
        let Some(decoded) = encoding::base64_decode(token) else { return Ok(None) };
        let Some(replaced) = self.text(Context::Basic, &decoded, used, HEAD_BYTES_MAX)? else { return Ok(None) };
        let sent = encoding::base64(&replaced);
        let mut out = Zeroizing::new(scheme.to_vec());
        out.extend_from_slice(sent.as_bytes());
        used.credentials.push((sent, String::from_utf8_lossy(token).into_owned()));
        Ok(Some(out))
    }

    fn url(&self, parts: &mut Parts, used: &mut Used) -> Result<(), Fault> {
        let path = self.text(Context::Path, parts.uri.path().as_bytes(), used, HEAD_BYTES_MAX)?;
        let query = match parts.uri.query() {
            Some(query) => self.text(Context::Query, query.as_bytes(), used, HEAD_BYTES_MAX)?,
            None => None,
        };
        if path.is_none() && query.is_none() {
            return Ok(());
        }
        let mut text = path.unwrap_or_else(|| encoding::raw(parts.uri.path()));
        if let Some(query) = query.or_else(|| parts.uri.query().map(encoding::raw)) {
            text.push(b'?');
            text.extend_from_slice(&query);
        }
        let mut uri = std::mem::take(&mut parts.uri).into_parts();
        uri.path_and_query = Some(text[..].try_into().map_err(|_| Fault::Url)?);
        parts.uri = Uri::from_parts(uri).map_err(|_| Fault::Url)?;
        Ok(())
    }
}

#[cfg(test)]
#[path = "substitute_test.rs"]
mod tests;
