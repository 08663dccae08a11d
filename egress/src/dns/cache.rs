//! Answers about names, shared by all sandboxes.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ANSWERS_MAX: usize = 16 * 1024;
const TTL_MIN: Duration = Duration::from_secs(5);
const TTL_MAX: Duration = Duration::from_secs(300);
/// Of names that do not exist or have no address.
const NEGATIVE_TTL: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct Answer {
    /// Names that the asked one stands for, in order.
    pub chain: Vec<String>,
    pub addresses: Vec<Ipv4Addr>,
    pub exists: bool,
    pub until: Instant,
}

impl Answer {
    pub fn new(chain: Vec<String>, addresses: Vec<Ipv4Addr>, exists: bool, ttl: u32, now: Instant) -> Answer {
        let ttl =
            if addresses.is_empty() { NEGATIVE_TTL } else { Duration::from_secs(ttl.into()).clamp(TTL_MIN, TTL_MAX) };
        Answer { chain, addresses, exists, until: now + ttl }
    }

    /// One that the operator sets.
    pub fn fixed(addresses: Vec<Ipv4Addr>, now: Instant) -> Answer {
        Answer { chain: Vec::new(), addresses, exists: true, until: now + TTL_MAX }
    }

    pub fn ttl(&self, now: Instant) -> Duration {
        self.until.saturating_duration_since(now)
    }
}

#[derive(Default)]
pub struct Cache(HashMap<String, Arc<Answer>>);

impl Cache {
    pub fn get(&self, name: &str, now: Instant) -> Option<Arc<Answer>> {
        self.0.get(name).filter(|answer| answer.until > now).cloned()
    }

    pub fn put(&mut self, name: &str, answer: Arc<Answer>, now: Instant) {
        if self.0.len() >= ANSWERS_MAX {
            self.0.retain(|_, known| known.until > now);
        }
        if self.0.len() >= ANSWERS_MAX {
            // All are valid: an eighth goes, by the order of a hash that nobody outside knows.
            let mut number = 0;
            self.0.retain(|_, _| {
                number += 1;
                number % 8 != 0
            });
        }
        self.0.insert(name.to_owned(), answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_clamped_and_the_cache_is_bounded() {
        let now = Instant::now();
        let ttl = |seconds| Answer::new(vec![], vec![Ipv4Addr::LOCALHOST], true, seconds, now).ttl(now).as_secs();
        assert_eq!((ttl(0), ttl(60), ttl(u32::MAX)), (5, 60, 300));
        let mut cache = Cache::default();
        let answer = Arc::new(Answer::fixed(vec![], now));
        for number in 0..2 * ANSWERS_MAX {
            cache.put(&format!("{number}.example"), answer.clone(), now);
        }
        assert!(cache.0.len() <= ANSWERS_MAX);
        assert!(cache.get("nothing.example", now).is_none());
        let last = format!("{}.example", 2 * ANSWERS_MAX - 1);
        assert!(cache.get(&last, now).is_some());
        assert!(cache.get(&last, now + TTL_MAX).is_none());
    }
}
