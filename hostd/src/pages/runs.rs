//! Finds the runs of pages that a file shares with an earlier one. A short run would cost more in extents than it saves.

use std::collections::HashMap;

/// Pages of the shortest run: 64 KiB.
const RUN_MIN: usize = 16;

/// `pages` pages from `at` on are the same as the earlier ones from `from` on.
#[derive(Debug, PartialEq)]
pub struct Run {
    pub at: usize,
    pub from: usize,
    pub pages: usize,
}

pub struct Runs {
    /// Hashes of the earlier pages.
    earlier: Vec<u64>,
    /// Each sixteenth earlier page, by its hash. Every run holds one of them.
    anchors: HashMap<u64, usize>,
}

impl Runs {
    pub fn of(earlier: Vec<u64>) -> Runs {
        let mut anchors = HashMap::new();
        for from in (0..earlier.len()).step_by(RUN_MIN) {
            anchors.entry(earlier[from]).or_insert(from);
        }
        Runs { earlier, anchors }
    }

    /// The runs in order, without overlaps.
    pub fn within(&self, pages: &[u64]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut at = 0;
        while at < pages.len() {
            let last = runs.last();
            let free_from = last.map_or(0, |run| run.at + run.pages);
            // Most memory lies where it lay before: behind a changed page, the page at the same distance usually matches again.
            let next =
                last.map(|run| run.from + (at - run.at)).filter(|from| self.earlier.get(*from) == Some(&pages[at]));
            let anchor = self.anchors.get(&pages[at]).copied();
            let found = next.into_iter().chain(anchor).map(|from| self.around(pages, free_from, at, from));
            match found.into_iter().find(|run| run.pages >= RUN_MIN) {
                Some(run) => {
                    at = run.at + run.pages;
                    runs.push(run);
                }
                None => at += 1,
            }
        }
        runs
    }

    /// The run through page `at`, which is the same as the earlier page `from`. The run begins at `free_from` at the earliest.
    fn around(&self, pages: &[u64], free_from: usize, at: usize, from: usize) -> Run {
        let same = |(one, other): &(&u64, &u64)| one == other;
        let before = pages[free_from..at].iter().rev().zip(self.earlier[..from].iter().rev()).take_while(same).count();
        let behind = pages[at..].iter().zip(&self.earlier[from..]).take_while(same).count();
        Run { at: at - before, from: from - before, pages: before + behind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn earlier(count: u64) -> Runs {
        Runs::of((0..count).collect())
    }

    #[test]
    fn memory_that_has_not_changed_is_one_run() {
        let same: Vec<u64> = (0..100).collect();
        assert_eq!(earlier(100).within(&same), [Run { at: 0, from: 0, pages: 100 }]);
    }

    #[test]
    fn a_page_that_has_changed_parts_two_runs() {
        let mut changed: Vec<u64> = (0..100).collect();
        changed[50] = 1000;
        let runs = [Run { at: 0, from: 0, pages: 50 }, Run { at: 51, from: 51, pages: 49 }];
        assert_eq!(earlier(100).within(&changed), runs);
    }

    #[test]
    fn a_run_is_found_where_it_has_moved_to_with_the_pages_before_its_anchor() {
        let moved: Vec<u64> = (1000..1003).chain(5..40).chain(2000..2010).collect();
        assert_eq!(earlier(100).within(&moved), [Run { at: 3, from: 5, pages: 35 }]);
    }

    #[test]
    fn short_runs_are_left() {
        let parts: Vec<u64> = (0..15).chain(1000..1100).chain(15..30).collect();
        assert_eq!(earlier(100).within(&parts), []);
        assert_eq!(earlier(0).within(&parts), []);
        assert_eq!(earlier(100).within(&[]), []);
    }

    #[test]
    fn what_is_found_is_the_same_and_lies_apart() {
        // Many pages alike, as memory has, in an order without a pattern.
        let mut state = 1u64;
        let mut next = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for round in 0..200 {
            let kinds = 1 + round % 5;
            let before: Vec<u64> = (0..next(300)).map(|_| next(kinds)).collect();
            let mut after = before.clone();
            for _ in 0..next(10) {
                let at = next(after.len() as u64 + 1) as usize;
                after.splice(at..at, (0..next(20)).map(|_| next(kinds)).collect::<Vec<u64>>());
            }
            let mut free_from = 0;
            for run in Runs::of(before.clone()).within(&after) {
                assert!(run.at >= free_from && run.pages >= RUN_MIN);
                assert_eq!(after[run.at..run.at + run.pages], before[run.from..run.from + run.pages]);
                free_from = run.at + run.pages;
            }
        }
    }
}
