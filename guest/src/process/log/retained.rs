//! The last bytes of one stream, and their offsets in the log of both streams.
//!
//! Programs write to both streams alternately, a line or a byte at a time, so a stream lies in the log in many short runs. A block stores
//! the bytes of many runs in a row, and beside them only the breaks: the length of a run, and how many bytes of the other stream follow it.
//! Both are numbers with seven bits to a byte, so a break between short runs costs two bytes.

use std::collections::VecDeque;
use std::mem::size_of;

const DATA_BYTES_MAX: usize = 32 * 1024;
/// Bound of the breaks of one block: each search in a block reads them one by one.
const BREAKS_BYTES_MAX: usize = 1024;

#[derive(Default)]
pub struct Retained {
    blocks: VecDeque<Block>,
    bytes: usize,
    memory: usize,
    dropped: bool,
}

struct Block {
    /// The offset of `data[0]` in the log, and the offset behind the last byte.
    offset: u64,
    end: u64,
    data: Vec<u8>,
    /// How many bytes at the beginning of `data` were dropped.
    skip: usize,
    breaks: Vec<u8>,
    /// Where the last run begins in `data`; the run ends with `data`.
    last: usize,
}

/// Bytes `at..at + length` of a block's data, which follow each other in the log from `offset` on.
struct Run {
    offset: u64,
    at: usize,
    length: usize,
}

impl Retained {
    /// Bytes that can be read.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn memory(&self) -> usize {
        self.memory
    }

    pub fn dropped(&self) -> bool {
        self.dropped
    }

    /// `offset` is the offset of `data` in the log, not before the end of the retained bytes.
    pub fn append(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.bytes += data.len();
        if let Some(block) = self.blocks.back_mut() {
            let before = block.memory();
            if block.append(offset, data) {
                self.memory += block.memory() - before;
                return;
            }
            block.data.shrink_to_fit();
            block.breaks.shrink_to_fit();
        }
        let block = Block {
            offset,
            end: offset + data.len() as u64,
            data: data.to_vec(),
            skip: 0,
            breaks: Vec::new(),
            last: 0,
        };
        self.memory += block.memory();
        self.blocks.push_back(block);
    }

    /// Drops the oldest bytes before `offset`, at most `count`.
    pub fn drop_before(&mut self, offset: u64, mut count: usize) {
        while let Some(block) = self.blocks.front_mut() {
            let dropping = block.bytes_before(offset).min(count);
            if dropping == 0 {
                return;
            }
            self.dropped = true;
            self.bytes -= dropping;
            count -= dropping;
            block.skip += dropping;
            if block.skip < block.data.len() {
                return;
            }
            self.memory -= block.memory();
            self.blocks.pop_front();
        }
    }

    /// The retained runs from `cursor` on, each with its offset.
    pub fn runs_from(&self, cursor: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let index = self.blocks.partition_point(|block| block.end <= cursor);
        self.blocks.range(index..).flat_map(move |block| block.runs_from(cursor))
    }
}

impl Block {
    fn memory(&self) -> usize {
        size_of::<Block>() + self.data.len() + self.breaks.len()
    }

    /// False when the block is full.
    fn append(&mut self, offset: u64, data: &[u8]) -> bool {
        let full = self.data.len() + data.len() > DATA_BYTES_MAX;
        if full || (offset != self.end && self.breaks.len() >= BREAKS_BYTES_MAX) {
            return false;
        }
        if offset != self.end {
            push_number(&mut self.breaks, (self.data.len() - self.last) as u64);
            push_number(&mut self.breaks, offset - self.end);
            self.last = self.data.len();
        }
        self.data.extend_from_slice(data);
        self.end = offset + data.len() as u64;
        true
    }

    fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let mut breaks = self.breaks.as_slice();
        let mut next = Some((self.offset, 0));
        std::iter::from_fn(move || {
            let (offset, at) = next?;
            if breaks.is_empty() {
                next = None;
                return Some(Run { offset, at, length: self.data.len() - at });
            }
            let length = take_number(&mut breaks) as usize;
            next = Some((offset + length as u64 + take_number(&mut breaks), at + length));
            Some(Run { offset, at, length })
        })
    }

    /// How many retained bytes lie before this offset.
    fn bytes_before(&self, offset: u64) -> usize {
        if self.end <= offset {
            return self.data.len() - self.skip;
        }
        let place = self.runs().take_while(|run| run.offset < offset).last();
        let reached = place.map_or(0, |run| run.at + run.length.min((offset - run.offset) as usize));
        reached.saturating_sub(self.skip)
    }

    fn runs_from(&self, cursor: u64) -> impl Iterator<Item = (u64, &[u8])> {
        self.runs().filter_map(move |run| {
            let begin = self.skip.saturating_sub(run.at).max(cursor.saturating_sub(run.offset) as usize);
            let data = self.data.get(run.at + begin..run.at + run.length)?;
            Some((run.offset + begin as u64, data)).filter(|_| !data.is_empty())
        })
    }
}

/// Seven bits to a byte, the lowest first; the highest bit says that more follow.
fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_are_read_as_they_were_written() {
        let numbers = [0, 1, 127, 128, 300, 16_384, 1 << 35, u64::MAX];
        let mut bytes = Vec::new();
        numbers.iter().for_each(|&number| push_number(&mut bytes, number));
        let mut rest = bytes.as_slice();
        assert!(numbers.iter().all(|&number| take_number(&mut rest) == number) && rest.is_empty());
    }

    /// Every byte beside its offset.
    fn all(kept: &Retained) -> Vec<(u64, u8)> {
        kept.runs_from(0).flat_map(|(offset, data)| (offset..).zip(data.iter().copied())).collect()
    }

    #[test]
    fn runs_and_gaps_of_any_length_are_told_and_dropped_to_the_byte() {
        let mut kept = Retained::default();
        let (mut expected, mut offset) = (VecDeque::new(), 0_u64);
        // Lengths and gaps of one to four encoded bytes, over many blocks.
        for round in 0..6000_u64 {
            let gap = [0, 1, 200, 20_000, 3_000_000][(round % 5) as usize];
            let data = vec![round as u8; [1, 2, 130, 40][(round * 7 % 4) as usize]];
            offset += gap;
            kept.append(offset, &data);
            expected.extend((offset..).zip(data.iter().copied()));
            offset += data.len() as u64;
            if round % 3 == 0 {
                kept.drop_before(u64::MAX, 50);
                expected.drain(..50.min(expected.len()));
            }
            if round % 1000 == 999 {
                let limit = expected[expected.len() / 3].0;
                kept.drop_before(limit, usize::MAX);
                expected.retain(|entry| entry.0 >= limit);
                assert_eq!(all(&kept), Vec::from(expected.clone()));
            }
        }
        assert_eq!(kept.bytes(), expected.len());
        assert_eq!(kept.memory(), kept.blocks.iter().map(Block::memory).sum::<usize>());
        for index in (0..expected.len()).step_by(97) {
            let (offset, byte) = expected[index];
            let (found, data) = kept.runs_from(offset).next().unwrap();
            assert_eq!((found, data[0]), (offset, byte));
        }
        kept.drop_before(u64::MAX, usize::MAX);
        assert_eq!((kept.bytes(), kept.memory(), kept.blocks.len()), (0, 0, 0));
    }

    #[test]
    fn a_run_costs_two_bytes_beside_its_own_however_many_there_are() {
        let mut kept = Retained::default();
        for index in 0..1_000_000 {
            kept.append(index * 2, b"x");
        }
        assert_eq!(kept.bytes(), 1_000_000);
        assert!(kept.memory() < 3_300_000, "{}", kept.memory());
    }
}
