//! The secrets of one request: put in, signed with, and remembered for its response.

use super::answer;
use super::body::Body;
use super::forward::{Routed, Stop};
use super::outgoing;
use super::record::Record;
use super::Session;
use crate::compiled::CompiledPlan;
use crate::mask::TooLarge;
use crate::search::Matcher;
use crate::signing::{self, BodyNeed};
use crate::substitute::{self, HostSecrets, Used};
use http::header::{HeaderValue, ACCEPT_ENCODING, HOST};
use http::request::Parts;
use http::StatusCode;
use std::sync::Arc;

type Prepared = (Body, Option<Arc<Matcher>>);

/// Puts values in, signs, and says what must be masked in the response.
pub async fn put_in(
    session: &Session,
    record: &Arc<Record>,
    plan: &Arc<CompiledPlan>,
    routed: &Routed,
    head: &mut Parts,
    body: Body,
) -> Result<Prepared, Stop> {
    let host = &routed.named.host;
    let bad = |reason: &str| {
        record.refuse(400, reason);
        Box::new(answer::refused(StatusCode::BAD_REQUEST, reason))
    };
    let secrets = plan.http.secrets(&plan.plan, host);
    let mut used = Used::default();
    secrets.head(head, &mut used).map_err(|fault| bad(&fault.to_string()))?;
    let signing = substitute::signing(&plan.plan, host)
        .filter_map(|secret| Some((secret.name.as_str(), signing::scheme_of(secret)?)))
        .find(|(_, scheme)| scheme.applies(head));
    let need = match &signing {
        Some((_, scheme)) => scheme.body_need(head).map_err(|reason| bad(&reason))?,
        None => BodyNeed::Nothing,
    };
    let body = Box::pin(outgoing::prepare(head, body, plan, &secrets, need, &mut used, record)).await?;
    plan.http.mark_sent(host, used.masked());
    used.secrets().for_each(|secret| record.secret(secrets.name(secret)));
    let matcher = masks(session, plan, host, &secrets, &mut used).map_err(|_| too_large(record))?;
    if matcher.is_some() {
        // What is compressed cannot be searched.
        head.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    if let Some((name, scheme)) = &signing {
        let written = head.headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or(host).to_owned();
        scheme.sign(head, &written, body.whole.as_deref(), body.changed).map_err(|reason| bad(&reason))?;
        record.secret(name);
    }
    Ok((body.body, matcher))
}

fn masks(
    session: &Session,
    plan: &CompiledPlan,
    host: &str,
    secrets: &HostSecrets,
    used: &mut Used,
) -> Result<Option<Arc<Matcher>>, TooLarge> {
    let mut masks = session.masks();
    secrets.mask(&mut masks, plan.http.sent(host).into_iter());
    secrets.mask(&mut masks, used.masked());
    secrets.mask_credentials(&mut masks, used);
    masks.matcher()
}

fn too_large(record: &Record) -> Stop {
    let reason = "the secrets of this host are too large to be masked in its responses";
    record.refuse(400, reason);
    Box::new(answer::refused(StatusCode::BAD_REQUEST, reason))
}
