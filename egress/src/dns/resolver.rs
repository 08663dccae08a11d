//! Asks the operator's resolvers in turn, once for all who want the same name at the same time.

use super::cache::{Answer, Cache};
use super::client::{exchange, Answered};
use super::message::{self, Record, Response, ADDRESSES_MAX, CHAIN_MAX, NO_ERROR, NO_SUCH_NAME};
use super::Fault;
use crate::sandboxes::lock;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::{watch, Semaphore};

/// Times that each resolver is asked.
const ROUNDS: usize = 2;
/// Questions for one name: each follows an alias whose target the answer did not tell.
const FOLLOWED_MAX: usize = 4;

type Outcome = Option<Result<Arc<Answer>, Fault>>;

pub struct Resolver {
    resolvers: Vec<SocketAddr>,
    in_flight: Arc<Semaphore>,
    cache: Mutex<Cache>,
    asked: Mutex<HashMap<String, watch::Receiver<Outcome>>>,
}

impl Resolver {
    pub fn new(resolvers: Vec<SocketAddr>, in_flight_max: usize) -> Resolver {
        let in_flight = Arc::new(Semaphore::new(in_flight_max));
        Resolver { resolvers, in_flight, cache: Mutex::default(), asked: Mutex::default() }
    }

    pub fn known(&self, name: &str, now: Instant) -> Option<Arc<Answer>> {
        lock(&self.cache).get(name, now)
    }

    pub async fn ask(self: &Arc<Self>, name: &str) -> Result<Arc<Answer>, Fault> {
        let mut waiting = {
            let mut asked = lock(&self.asked);
            match asked.get(name) {
                Some(waiting) => waiting.clone(),
                None => {
                    // The question goes on when the one who asked first has gone.
                    let permit = self.in_flight.clone().try_acquire_owned().map_err(|_| Fault::Failed)?;
                    let (tell, waiting) = watch::channel(None);
                    asked.insert(name.to_owned(), waiting.clone());
                    let (resolver, name) = (self.clone(), name.to_owned());
                    tokio::spawn(async move {
                        let outcome = resolver.follow(&name).await.map(Arc::new);
                        if let Ok(answer) = &outcome {
                            lock(&resolver.cache).put(&name, answer.clone(), Instant::now());
                        }
                        lock(&resolver.asked).remove(&name);
                        let _ = tell.send(Some(outcome));
                        drop(permit);
                    });
                    waiting
                }
            }
        };
        let outcome = waiting.wait_for(Option::is_some).await.map(|outcome| outcome.clone());
        outcome.ok().flatten().unwrap_or(Err(Fault::Failed))
    }

    async fn follow(&self, name: &str) -> Result<Answer, Fault> {
        let mut chain: Vec<String> = Vec::new();
        let mut ttl = u32::MAX;
        for _ in 0..FOLLOWED_MAX {
            let asked = chain.last().map_or(name, String::as_str).to_owned();
            let response = self.question(&asked, message::A).await?.response;
            ttl = ttl.min(response.ttl);
            let before = chain.len();
            let addresses = walk(&response, &asked, &mut chain).ok_or(Fault::Failed)?;
            let exists = response.code == NO_ERROR;
            if !addresses.is_empty() || chain.len() == before || !exists {
                return Ok(Answer::new(chain, addresses, exists, ttl, Instant::now()));
            }
        }
        Err(Fault::Failed)
    }

    /// Any other kind of record, as it came. The answer is to this question; what it says is not checked.
    pub async fn forward(&self, name: &str, kind: u16) -> Result<Vec<u8>, Fault> {
        let _permit = self.in_flight.try_acquire().map_err(|_| Fault::Failed)?;
        Ok(self.question(name, kind).await?.message)
    }

    async fn question(&self, name: &str, kind: u16) -> Result<Answered, Fault> {
        for _ in 0..ROUNDS {
            for resolver in &self.resolvers {
                match exchange(*resolver, name, kind).await {
                    Ok(answered) if matches!(answered.response.code, NO_ERROR | NO_SUCH_NAME) => return Ok(answered),
                    _ => {}
                }
            }
        }
        Err(Fault::Failed)
    }
}

/// Follows aliases from a name in one answer to its addresses; absent if they go on for ever.
fn walk(response: &Response, from: &str, chain: &mut Vec<String>) -> Option<Vec<Ipv4Addr>> {
    let mut at = from.to_owned();
    loop {
        let of = response.records.iter().filter(|(owner, _)| *owner == at).map(|(_, record)| record);
        let mut addresses = Vec::new();
        let mut alias = None;
        for record in of {
            match record {
                Record::Address(address) if !addresses.contains(address) => addresses.push(*address),
                Record::Alias(target) => alias = Some(target),
                Record::Address(_) => {}
            }
        }
        match alias {
            Some(target) if addresses.is_empty() => {
                if chain.len() == CHAIN_MAX || target == from || chain.contains(target) {
                    return None;
                }
                chain.push(target.clone());
                at.clone_from(target);
            }
            _ => {
                addresses.truncate(ADDRESSES_MAX);
                return Some(addresses);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(records: Vec<(&str, Record)>) -> Response {
        let records = records.into_iter().map(|(owner, record)| (owner.to_owned(), record)).collect();
        Response { code: NO_ERROR, truncated: false, records, ttl: 60 }
    }

    #[test]
    fn aliases_are_followed_and_loops_are_not() {
        let alias = |target: &str| Record::Alias(target.to_owned());
        let there = Record::Address(Ipv4Addr::new(192, 0, 2, 1));
        let mut chain = Vec::new();
        let good = response(vec![("c.test", there.clone()), ("a.test", alias("b.test")), ("b.test", alias("c.test"))]);
        assert_eq!(walk(&good, "a.test", &mut chain), Some(vec![Ipv4Addr::new(192, 0, 2, 1)]));
        assert_eq!(chain, ["b.test", "c.test"]);
        let around = response(vec![("a.test", alias("b.test")), ("b.test", alias("a.test"))]);
        assert_eq!(walk(&around, "a.test", &mut Vec::new()), None);
        // The address of another name is not the answer.
        assert_eq!(walk(&response(vec![("evil.test", there)]), "a.test", &mut Vec::new()), Some(vec![]));
    }
}
