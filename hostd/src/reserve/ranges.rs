use std::collections::BTreeMap;

/// Disjoint ranges of bytes that do not touch: from start to end.
#[derive(Default)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub fn add(&mut self, start: u64, length: u64) {
        let (mut start, mut end) = (start, start + length);
        while let Some((&before, &its_end)) = self.0.range(..=end).next_back() {
            if its_end < start {
                break;
            }
            self.0.remove(&before);
            start = start.min(before);
            end = end.max(its_end);
        }
        self.0.insert(start, end);
    }

    /// The parts of a range that are in none of these ranges, as start and length.
    pub fn gaps(&self, start: u64, length: u64) -> Vec<(u64, u64)> {
        let end = start + length;
        let mut found = Vec::new();
        let mut at = start;
        for (from, to) in self.overlaps(start, end) {
            if from > at {
                found.push((at, from - at));
            }
            at = to;
        }
        if at < end {
            found.push((at, end - at));
        }
        found
    }

    pub fn bytes_in(&self, start: u64, length: u64) -> u64 {
        self.overlaps(start, start + length).map(|(from, to)| to - from).sum()
    }

    /// How many bytes of `given`, one range after the other, come before the first byte that is in none of these ranges.
    pub fn prefix_of(&self, given: &[(u64, u64)]) -> u64 {
        let mut bytes = 0;
        for &(start, length) in given {
            match self.gaps(start, length).first() {
                None => bytes += length,
                Some(&(gap, _)) => return bytes + gap - start,
            }
        }
        bytes
    }

    fn overlaps(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.0.range(..=start).next_back().map_or(start, |(&from, _)| from);
        self.0
            .range(first..end.max(first))
            .map(move |(&from, &to)| (from.max(start), to.min(end)))
            .filter(|(from, to)| from < to)
    }
}

/// What lies between ordered chunks, each a start and a length.
pub fn holes_of(chunks: &[(u64, u64)], start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut taken = Ranges::default();
    for &(at, length) in chunks {
        taken.add(at, length);
    }
    taken.gaps(start, end.saturating_sub(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(given: &[(u64, u64)]) -> Ranges {
        let mut made = Ranges::default();
        for &(start, length) in given {
            made.add(start, length);
        }
        made
    }

    #[test]
    fn ranges_that_touch_or_overlap_become_one() {
        assert_eq!(ranges(&[(10, 5), (20, 5), (15, 5)]).0, BTreeMap::from([(10, 25)]));
        assert_eq!(ranges(&[(10, 5), (30, 5), (0, 100)]).0, BTreeMap::from([(0, 100)]));
        assert_eq!(ranges(&[(10, 5), (12, 1)]).0, BTreeMap::from([(10, 15)]));
    }

    #[test]
    fn gaps_are_what_no_range_has() {
        let some = ranges(&[(10, 5), (20, 5)]);
        assert_eq!(some.gaps(0, 30), [(0, 10), (15, 5), (25, 5)]);
        assert_eq!(some.gaps(12, 10), [(15, 5)]);
        assert_eq!(some.gaps(10, 5), []);
        assert_eq!(some.bytes_in(12, 10), 5);
    }

    #[test]
    fn the_prefix_ends_with_the_first_gap() {
        let some = ranges(&[(10, 5), (20, 5)]);
        assert_eq!(some.prefix_of(&[(10, 5), (20, 8)]), 10);
        assert_eq!(some.prefix_of(&[(9, 5), (20, 5)]), 0);
        assert_eq!(some.prefix_of(&[(11, 4), (20, 5)]), 9);
    }

    #[test]
    fn holes_lie_between_chunks() {
        assert_eq!(holes_of(&[(10, 5), (15, 5), (30, 5)], 1, 40), [(1, 9), (20, 10), (35, 5)]);
        assert_eq!(holes_of(&[], 1, 40), [(1, 39)]);
        assert_eq!(holes_of(&[(1, 39)], 1, 40), []);
    }
}
