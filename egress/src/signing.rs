//! Schemes in which a secret signs a request, so that no header carries it. The sandbox signs with placeholders; what it signed is signed anew here.

use crate::model::{Secret, Signing};
use crate::sigv4::SigV4;
use http::request::Parts;

/// Bodies whose hash is needed are kept in memory up to this size.
pub const SIGNED_BODY_BYTES_MAX: usize = 1024 * 1024;

/// What a scheme must know of the body before the head goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyNeed {
    Nothing,
    /// Its bytes if a value was put into it.
    IfChanged,
    Whole,
}

/// A scheme with the keys of one secret. A further scheme is a variant of `model::Signing` and a line in `scheme_of`.
pub trait Scheme: Send + Sync {
    /// Whether the request is signed in this scheme with the placeholders of this secret.
    fn applies(&self, head: &Parts) -> bool;

    /// Fails with a message for the sandbox if the request cannot be signed anew.
    fn body_need(&self, head: &Parts) -> Result<BodyNeed, String>;

    /// Signs the head as it goes out to `host`. `body`: its bytes if `body_need` asked for them; `changed`: a value was put into it.
    fn sign(&self, head: &mut Parts, host: &str, body: Option<&[u8]>, changed: bool) -> Result<(), String>;
}

pub fn scheme_of(secret: &Secret) -> Option<Box<dyn Scheme>> {
    match secret.sign.as_ref()? {
        Signing::AwsSigv4 { access_key_placeholder, access_key } => {
            Some(Box::new(SigV4::new(access_key_placeholder, access_key, &secret.value)))
        }
    }
}
