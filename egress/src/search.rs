//! Search and replacement of many byte patterns in a stream, in linear time and bounded memory (Aho and Corasick).
//!
//! Of matches that overlap the one that starts first wins, and of those that start together the longest, as if the whole
//! stream were in memory. Only bytes that may be the start of a pattern are held back, so that an event of a stream is
//! passed on at once.

use memchr::memmem::Finder;
use zeroize::{Zeroize, Zeroizing};

/// Patterns up to this number are looked for by their first bytes, which is faster than the automaton where they are rare.
pub(crate) const FINDERS_MAX: usize = 8;
const FINDER_BYTES_MAX: usize = 8;

const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

/// One state: a prefix of at least one pattern.
struct Node {
    byte: u8,
    depth: u32,
    /// The longest proper suffix that is a state too.
    fail: u32,
    /// The longest pattern that ends here.
    pattern: u32,
    child: u32,
    sibling: u32,
}

impl Node {
    fn new(byte: u8, depth: u32) -> Self {
        Node { byte, depth, fail: ROOT, pattern: NONE, child: NONE, sibling: NONE }
    }
}

/// The patterns and what stands in their place. Built once, shared by all streams.
pub struct Matcher {
    nodes: Vec<Node>,
    root: Box<[u32; 256]>,
    lengths: Vec<usize>,
    replacements: Vec<Zeroizing<Vec<u8>>>,
    finders: Vec<Finder<'static>>,
    finder_bytes: usize,
}

impl Drop for Matcher {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            node.byte.zeroize();
        }
    }
}

/// A match: `data[start..end]` is the pattern of this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Match {
    pub start: usize,
    pub end: usize,
    pub pattern: u32,
}

/// Where a search stands in its data.
#[derive(Default)]
pub(crate) struct Cursor {
    pub at: usize,
    node: u32,
    pub best: Option<Match>,
}

impl Matcher {
    /// Empty patterns and repeated ones are left out; the number of a pattern is its place in `pairs`.
    pub fn new(pairs: Vec<(Vec<u8>, Zeroizing<Vec<u8>>)>) -> Self {
        let mut matcher = Matcher {
            nodes: vec![Node::new(0, 0)],
            root: Box::new([ROOT; 256]),
            lengths: Vec::with_capacity(pairs.len()),
            replacements: Vec::with_capacity(pairs.len()),
            finders: Vec::new(),
            finder_bytes: 0,
        };
        let mut firsts: Vec<Vec<u8>> = Vec::new();
        for (number, (mut pattern, replacement)) in pairs.into_iter().enumerate() {
            matcher.lengths.push(pattern.len());
            matcher.replacements.push(replacement);
            if matcher.insert(&pattern, number as u32) {
                firsts.push(pattern[..pattern.len().min(FINDER_BYTES_MAX)].to_vec());
            }
            pattern.zeroize();
        }
        matcher.link();
        firsts.sort();
        firsts.dedup();
        if firsts.len() <= FINDERS_MAX {
            matcher.finder_bytes = firsts.iter().map(Vec::len).max().unwrap_or(0);
            matcher.finders = firsts.iter().map(|first| Finder::new(first).into_owned()).collect();
        }
        matcher
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    pub fn patterns(&self) -> usize {
        self.lengths.len()
    }

    fn insert(&mut self, pattern: &[u8], number: u32) -> bool {
        if pattern.is_empty() {
            return false;
        }
        let mut at = ROOT;
        for (index, &byte) in pattern.iter().enumerate() {
            at = match self.child(at, byte) {
                NONE => self.add(at, byte, index as u32 + 1),
                found => found,
            };
        }
        let node = &mut self.nodes[at as usize];
        let new = node.pattern == NONE;
        if new {
            node.pattern = number;
        }
        new
    }

    fn add(&mut self, parent: u32, byte: u8, depth: u32) -> u32 {
        let number = self.nodes.len() as u32;
        let mut node = Node::new(byte, depth);
        node.sibling = std::mem::replace(&mut self.nodes[parent as usize].child, number);
        self.nodes.push(node);
        if parent == ROOT {
            self.root[byte as usize] = number;
        }
        number
    }

    fn child(&self, parent: u32, byte: u8) -> u32 {
        if parent == ROOT {
            return match self.root[byte as usize] {
                ROOT => NONE,
                found => found,
            };
        }
        let mut at = self.nodes[parent as usize].child;
        while at != NONE && self.nodes[at as usize].byte != byte {
            at = self.nodes[at as usize].sibling;
        }
        at
    }

    /// Sets `fail` breadth first, and lets a state inherit the pattern of its longest suffix that has one.
    fn link(&mut self) {
        let mut queue = std::collections::VecDeque::from([ROOT]);
        while let Some(parent) = queue.pop_front() {
            let mut at = self.nodes[parent as usize].child;
            while at != NONE {
                let byte = self.nodes[at as usize].byte;
                let fail = if parent == ROOT { ROOT } else { self.step(self.nodes[parent as usize].fail, byte) };
                let inherited = self.nodes[fail as usize].pattern;
                let node = &mut self.nodes[at as usize];
                node.fail = fail;
                if node.pattern == NONE {
                    node.pattern = inherited;
                }
                queue.push_back(at);
                at = node.sibling;
            }
        }
    }

    fn step(&self, mut node: u32, byte: u8) -> u32 {
        loop {
            if node == ROOT {
                return self.root[byte as usize];
            }
            match self.child(node, byte) {
                NONE => node = self.nodes[node as usize].fail,
                found => return found,
            }
        }
    }

    /// The next place at which a pattern may start. The last bytes are always given to the automaton.
    fn candidate(&self, data: &[u8], from: usize, hits: &mut [usize; FINDERS_MAX]) -> usize {
        if self.finders.is_empty() {
            return data[from..]
                .iter()
                .position(|&byte| self.root[byte as usize] != ROOT)
                .map_or(data.len(), |n| from + n);
        }
        let tail = (data.len() + 1).saturating_sub(self.finder_bytes).max(from);
        let mut nearest = tail;
        for (finder, hit) in self.finders.iter().zip(hits.iter_mut()) {
            if *hit < from || *hit == 0 {
                *hit = finder.find(&data[from..]).map_or(usize::MAX, |n| from + n);
            }
            nearest = nearest.min(*hit);
        }
        nearest
    }

    /// The next match that nothing later can change.
    pub(crate) fn next(&self, cursor: &mut Cursor, data: &[u8], hits: &mut [usize; FINDERS_MAX]) -> Option<Match> {
        while cursor.at < data.len() {
            if cursor.node == ROOT && cursor.best.is_none() {
                cursor.at = self.candidate(data, cursor.at, hits);
                if cursor.at >= data.len() {
                    break;
                }
            }
            cursor.node = self.step(cursor.node, data[cursor.at]);
            cursor.at += 1;
            let node = &self.nodes[cursor.node as usize];
            let start = cursor.at - node.depth as usize;
            if let Some(best) = cursor.best.filter(|best| start > best.start) {
                return Some(self.restart(cursor, best));
            }
            if node.pattern == NONE {
                continue;
            }
            let found =
                Match { start: cursor.at - self.lengths[node.pattern as usize], end: cursor.at, pattern: node.pattern };
            if cursor.best.is_none_or(|best| found.start <= best.start) {
                cursor.best = Some(found);
                if found.start == start && node.child == NONE {
                    return Some(self.restart(cursor, found));
                }
            }
        }
        None
    }

    pub(crate) fn restart(&self, cursor: &mut Cursor, found: Match) -> Match {
        *cursor = Cursor { at: found.end, node: ROOT, best: None };
        found
    }

    /// The first byte that must be held back until more is known.
    pub(crate) fn held_from(&self, cursor: &Cursor) -> usize {
        cursor.at - self.nodes[cursor.node as usize].depth as usize
    }

    /// Whether a pattern is in a text.
    pub fn is_in(&self, data: &[u8]) -> bool {
        let (mut cursor, mut hits) = (Cursor::default(), [0; FINDERS_MAX]);
        self.next(&mut cursor, data, &mut hits).is_some() || cursor.best.is_some()
    }

    pub(crate) fn replacement(&self, found: &Match) -> &[u8] {
        &self.replacements[found.pattern as usize]
    }

    /// Replaces in a whole text. `None`: nothing was found. `used` gets the numbers of the patterns.
    pub fn replace(&self, data: &[u8], used: &mut Vec<u32>) -> Option<Vec<u8>> {
        self.replace_within(data, used, usize::MAX).ok().flatten()
    }

    /// The same, if the result has at most `max` bytes.
    pub fn replace_within(&self, data: &[u8], used: &mut Vec<u32>, max: usize) -> Result<Option<Vec<u8>>, TooLong> {
        let mut out = Vec::new();
        let mut from = 0;
        let (mut cursor, mut hits) = (Cursor::default(), [0; FINDERS_MAX]);
        loop {
            let found = match self.next(&mut cursor, data, &mut hits) {
                Some(found) => found,
                None => match cursor.best {
                    Some(best) => self.restart(&mut cursor, best),
                    None => break,
                },
            };
            out.extend_from_slice(&data[from..found.start]);
            out.extend_from_slice(&self.replacements[found.pattern as usize]);
            from = found.end;
            if out.len() > max {
                return Err(TooLong);
            }
            if !used.contains(&found.pattern) {
                used.push(found.pattern);
            }
        }
        if from == 0 {
            return Ok(None);
        }
        out.extend_from_slice(&data[from..]);
        if out.len() > max {
            return Err(TooLong);
        }
        Ok(Some(out))
    }
}

/// A text would be longer than allowed with the replacements in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

#[cfg(test)]
#[path = "search_test.rs"]
pub mod tests;
