//! Names: the server that sandboxes ask, and the client that asks the operator's resolvers. What a sandbox is told here is what is dialled for it.
//!
//! Messages are read and written by [`message`], not by a crate: what is needed is one question, `A` and `CNAME` records and an `OPT` record,
//! and a parser of a few hundred lines that copies nothing can be checked whole against hostile input.

pub mod budget;
pub mod cache;
pub mod client;
pub mod message;
pub mod resolver;
pub mod server;

use crate::egress::Egress;
use crate::sandboxes::Sandbox;
use cache::Answer;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Why a name has no answer at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The sandbox asked for too many different names.
    TooMany,
    /// No resolver gave a usable answer.
    Failed,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::TooMany => "too many different names",
            Fault::Failed => "the name could not be resolved",
        })
    }
}

/// Asks for a (normalised) name on behalf of a sandbox.
pub async fn resolve(egress: &Arc<Egress>, sandbox: &Sandbox, name: &str) -> Result<Arc<Answer>, Fault> {
    if let Some(address) = egress.own_names.get(name) {
        return Ok(Arc::new(Answer::fixed(vec![*address], Instant::now())));
    }
    if let Some(answer) = egress.resolver.known(name, Instant::now()) {
        return Ok(answer);
    }
    if !sandbox.may_ask() {
        return Err(Fault::TooMany);
    }
    let Ok(_permit) = sandbox.asking.acquire().await else { return Err(Fault::Failed) };
    egress.resolver.ask(name).await
}
