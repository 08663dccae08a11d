//! The input offset that each client of a process has reached. It outlives the client's connections: when one breaks, the guest drops
//! input that the process did not take, and on the next the client continues with the first byte that was not taken. So no byte is
//! lost or doubled, however a connection ends.

/// Disconnected clients that may come back, per process.
const GONE_MAX: usize = 64;

#[derive(Default)]
pub struct StdinCursors {
    known: Vec<StdinCursor>,
    generations: u64,
}

struct StdinCursor {
    client: String,
    taken: u64,
    ended: bool,
    generation: u64,
    connected: bool,
}

/// One attachment of a client. Only its latest generation can feed the process. 0 is a client without a name, which cannot
/// come back.
#[derive(Clone, Copy, PartialEq)]
pub struct Generation(u64);

pub struct Progress {
    pub generation: Generation,
    pub taken: u64,
    pub ended: bool,
}

impl StdinCursors {
    /// An unknown client starts at `offset`.
    pub fn join(&mut self, client: Option<&str>, offset: u64) -> Progress {
        let name = match client {
            Some(name) => name,
            None => return Progress { generation: Generation(0), taken: 0, ended: false },
        };
        self.generations += 1;
        let generation = self.generations;
        let index = self.known.iter().position(|it| it.client == name).unwrap_or_else(|| {
            let client = name.to_string();
            self.known.push(StdinCursor { client, taken: offset, ended: false, generation, connected: true });
            self.known.len() - 1
        });
        let cursor = &mut self.known[index];
        cursor.generation = generation;
        cursor.connected = true;
        Progress { generation: Generation(generation), taken: cursor.taken, ended: cursor.ended }
    }

    pub fn holds(&self, generation: Generation) -> bool {
        generation.0 == 0 || self.known.iter().any(|it| it.generation == generation.0)
    }

    pub fn take(&mut self, generation: Generation, count: usize) {
        if let Some(cursor) = self.find(generation) {
            cursor.taken += count as u64;
        }
    }

    pub fn end(&mut self, generation: Generation) {
        if let Some(cursor) = self.find(generation) {
            cursor.ended = true;
        }
    }

    /// Drops the cursor of the client that left first when there are too many.
    pub fn leave(&mut self, generation: Generation) {
        if let Some(index) = self.known.iter().position(|it| it.generation == generation.0) {
            let mut cursor = self.known.remove(index);
            cursor.connected = false;
            self.known.push(cursor);
            if self.known.iter().filter(|it| !it.connected).count() > GONE_MAX {
                let oldest = self.known.iter().position(|it| !it.connected).unwrap_or(0);
                self.known.remove(oldest);
            }
        }
    }

    fn find(&mut self, generation: Generation) -> Option<&mut StdinCursor> {
        self.known.iter_mut().find(|it| it.generation == generation.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_continues_at_its_offset_and_its_old_connection_cannot_feed() {
        let mut cursors = StdinCursors::default();
        let first = cursors.join(Some("a"), 0);
        cursors.take(first.generation, 10);
        let second = cursors.join(Some("a"), 7);
        assert_eq!((second.taken, second.ended), (10, false));
        assert!(!cursors.holds(first.generation) && cursors.holds(second.generation));
        cursors.take(first.generation, 5);
        cursors.leave(first.generation);
        cursors.take(second.generation, 1);
        cursors.end(second.generation);
        cursors.leave(second.generation);
        let third = cursors.join(Some("a"), 0);
        assert_eq!((third.taken, third.ended), (11, true));
    }

    #[test]
    fn a_client_that_left_long_ago_starts_at_its_own_offset() {
        let mut cursors = StdinCursors::default();
        let here = cursors.join(Some("here"), 3);
        for index in 0..=GONE_MAX {
            let generation = cursors.join(Some(&index.to_string()), 5).generation;
            cursors.leave(generation);
        }
        assert_eq!(cursors.known.len(), GONE_MAX + 1);
        assert!(cursors.holds(here.generation));
        assert_eq!(cursors.join(Some("0"), 99).taken, 99);
        assert_eq!(cursors.join(Some("40"), 99).taken, 5);
    }

    #[test]
    fn a_client_without_a_name_is_not_remembered() {
        let mut cursors = StdinCursors::default();
        let generation = cursors.join(None, 0).generation;
        cursors.take(generation, 5);
        cursors.leave(generation);
        assert!(cursors.holds(generation) && cursors.known.is_empty());
    }
}
