//! What a sandbox was told about names. That is what is dialled, so that an answer cannot change between the decision and the connection, and it
//! tells the name of a connection whose protocol has none.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Programs use an answer a little longer than they were told.
const GRACE: Duration = Duration::from_secs(60);
/// Names of one address that are looked at; a shared address of a content network has many.
const NAMES_MAX: usize = 64;

pub struct Pins {
    /// Pairs of a name and an address.
    max: usize,
    count: usize,
    names: HashMap<String, Vec<Pin>>,
}

#[derive(Clone, Copy)]
struct Pin {
    address: Ipv4Addr,
    until: Instant,
}

impl Pins {
    pub fn new(max: usize) -> Pins {
        Pins { max, count: 0, names: HashMap::new() }
    }

    /// Adds to what was told before: that stays valid for its own time. Beyond the bound the names that end first are forgotten.
    pub fn add(&mut self, name: &str, addresses: &[Ipv4Addr], ttl: Duration, now: Instant) {
        let until = now + ttl + GRACE;
        let mut pins = self.names.remove(name).unwrap_or_default();
        self.count -= pins.len();
        // What is new comes first: it is dialled first.
        pins.retain(|pin| pin.until > now && !addresses.contains(&pin.address));
        pins.splice(0..0, addresses.iter().map(|address| Pin { address: *address, until }));
        pins.truncate(self.max);
        while self.count + pins.len() > self.max && self.forget_first() {}
        self.count += pins.len();
        self.names.insert(name.to_owned(), pins);
    }

    fn forget_first(&mut self) -> bool {
        let ends = |pins: &Vec<Pin>| pins.iter().map(|pin| pin.until).max();
        let first = self.names.iter().min_by_key(|(_, pins)| ends(pins)).map(|(name, _)| name.clone());
        let forgotten = first.and_then(|name| self.names.remove(&name));
        self.count -= forgotten.as_ref().map_or(0, Vec::len);
        forgotten.is_some()
    }

    /// Valid addresses of a name, the newest first.
    pub fn addresses(&self, name: &str, now: Instant) -> Vec<Ipv4Addr> {
        let pins = self.names.get(name).map_or(&[][..], Vec::as_slice);
        pins.iter().filter(|pin| pin.until > now).map(|pin| pin.address).collect()
    }

    /// Names that the sandbox resolved to this address: those whose answer is valid, and those that must be asked again.
    pub fn names(&self, address: Ipv4Addr, now: Instant) -> (Vec<String>, Vec<String>) {
        let pinned = self.names.iter().filter_map(|(name, pins)| {
            let until = pins.iter().find(|pin| pin.address == address)?.until;
            Some((name.clone(), until > now))
        });
        let (valid, stale): (Vec<_>, Vec<_>) = pinned.partition(|(_, valid)| *valid);
        let names = |list: Vec<(String, bool)>| list.into_iter().map(|(name, _)| name).take(NAMES_MAX).collect();
        (names(valid), names(stale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
    const TTL: Duration = Duration::from_secs(5);

    #[test]
    fn an_answer_is_valid_for_its_time_beside_a_newer_one() {
        let (mut pins, start) = (Pins::new(8), Instant::now());
        pins.add("a.example", &[A], TTL, start);
        let later = start + Duration::from_secs(30);
        pins.add("a.example", &[B], TTL, later);
        assert_eq!(pins.addresses("a.example", later), [B, A]);
        let after = start + TTL + GRACE;
        assert_eq!(pins.addresses("a.example", after), [B]);
        assert_eq!(pins.names(A, later).0, ["a.example"]);
        assert_eq!(pins.names(A, after), (vec![], vec!["a.example".to_owned()]));
    }

    #[test]
    fn pins_are_bounded_and_the_oldest_go_first() {
        let (mut pins, start) = (Pins::new(4), Instant::now());
        for number in 0..100u32 {
            pins.add(&format!("n{number}.example"), &[A, B], TTL, start + Duration::from_millis(number.into()));
        }
        assert_eq!((pins.count, pins.names.len()), (4, 2));
        assert_eq!(pins.addresses("n99.example", start), [A, B]);
        assert!(pins.addresses("n0.example", start).is_empty());
        pins.add("many.example", &(0..50).map(|last| Ipv4Addr::new(192, 0, 2, last)).collect::<Vec<_>>(), TTL, start);
        assert_eq!(pins.count, 4);
    }
}
