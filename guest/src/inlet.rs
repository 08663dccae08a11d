//! How much of its input each client of a process has got through. This outlives the client's connections: when one
//! breaks, what was received on it but not taken by the process is dropped, and the client goes on, on the next, with the
//! first byte that was not taken. So no byte is lost or doubled, whenever and however a connection ends.

/// Clients that are gone and may come back, per process.
const GONE_MAX: usize = 64;

#[derive(Default)]
pub struct Inlets {
    known: Vec<Inlet>,
    turns: u64,
}

struct Inlet {
    client: String,
    taken: u64,
    ended: bool,
    turn: u64,
    connected: bool,
}

/// The right of one connection to feed the process; lost when the same client joins again. 0 is a client without a name,
/// which cannot come back.
#[derive(Clone, Copy, PartialEq)]
pub struct Turn(u64);

pub struct Progress {
    pub turn: Turn,
    pub taken: u64,
    pub ended: bool,
}

impl Inlets {
    /// A client that is not known (any more) starts at `offset`.
    pub fn join(&mut self, client: Option<&str>, offset: u64) -> Progress {
        let name = match client {
            Some(name) => name,
            None => return Progress { turn: Turn(0), taken: 0, ended: false },
        };
        self.turns += 1;
        let turn = self.turns;
        let index = self.known.iter().position(|it| it.client == name).unwrap_or_else(|| {
            let client = name.to_string();
            self.known.push(Inlet { client, taken: offset, ended: false, turn, connected: true });
            self.known.len() - 1
        });
        let inlet = &mut self.known[index];
        inlet.turn = turn;
        inlet.connected = true;
        Progress { turn: Turn(turn), taken: inlet.taken, ended: inlet.ended }
    }

    pub fn holds(&self, turn: Turn) -> bool {
        turn.0 == 0 || self.known.iter().any(|it| it.turn == turn.0)
    }

    pub fn take(&mut self, turn: Turn, count: usize) {
        if let Some(inlet) = self.find(turn) {
            inlet.taken += count as u64;
        }
    }

    pub fn end(&mut self, turn: Turn) {
        if let Some(inlet) = self.find(turn) {
            inlet.ended = true;
        }
    }

    /// Keeps those that left last.
    pub fn leave(&mut self, turn: Turn) {
        if let Some(index) = self.known.iter().position(|it| it.turn == turn.0) {
            let mut inlet = self.known.remove(index);
            inlet.connected = false;
            self.known.push(inlet);
            if self.known.iter().filter(|it| !it.connected).count() > GONE_MAX {
                let oldest = self.known.iter().position(|it| !it.connected).unwrap_or(0);
                self.known.remove(oldest);
            }
        }
    }

    fn find(&mut self, turn: Turn) -> Option<&mut Inlet> {
        self.known.iter_mut().find(|it| it.turn == turn.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_goes_on_where_it_was_and_its_old_connection_may_not() {
        let mut inlets = Inlets::default();
        let first = inlets.join(Some("a"), 0);
        inlets.take(first.turn, 10);
        let second = inlets.join(Some("a"), 7);
        assert_eq!((second.taken, second.ended), (10, false));
        assert!(!inlets.holds(first.turn) && inlets.holds(second.turn));
        inlets.take(first.turn, 5);
        inlets.leave(first.turn);
        inlets.take(second.turn, 1);
        inlets.end(second.turn);
        inlets.leave(second.turn);
        let third = inlets.join(Some("a"), 0);
        assert_eq!((third.taken, third.ended), (11, true));
    }

    #[test]
    fn clients_that_left_long_ago_are_forgotten_and_start_where_they_say() {
        let mut inlets = Inlets::default();
        let here = inlets.join(Some("here"), 3);
        for index in 0..=GONE_MAX {
            let turn = inlets.join(Some(&index.to_string()), 5).turn;
            inlets.leave(turn);
        }
        assert_eq!(inlets.known.len(), GONE_MAX + 1);
        assert!(inlets.holds(here.turn));
        assert_eq!(inlets.join(Some("0"), 99).taken, 99);
        assert_eq!(inlets.join(Some("40"), 99).taken, 5);
    }

    #[test]
    fn a_client_without_a_name_is_not_remembered() {
        let mut inlets = Inlets::default();
        let turn = inlets.join(None, 0).turn;
        inlets.take(turn, 5);
        inlets.leave(turn);
        assert!(inlets.holds(turn) && inlets.known.is_empty());
    }
}
