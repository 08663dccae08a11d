//! A token bucket: so many at once, then so many a second.

use std::time::Instant;

pub struct Budget {
    burst: f64,
    per_second: f64,
    left: f64,
    at: Instant,
}

impl Budget {
    pub fn new(burst: u32, per_second: u32) -> Budget {
        Budget { burst: burst.into(), per_second: per_second.into(), left: burst.into(), at: Instant::now() }
    }

    pub fn take(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now.max(self.at);
        self.left = (self.left + since * self.per_second).min(self.burst);
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_budget_refills_with_time() {
        let mut budget = Budget::new(3, 10);
        let start = budget.at;
        assert_eq!((0..5).filter(|_| budget.take(start)).count(), 3);
        let later = start + Duration::from_millis(250);
        assert_eq!((0..5).filter(|_| budget.take(later)).count(), 2);
        let much_later = start + Duration::from_secs(3600);
        assert_eq!((0..5).filter(|_| budget.take(much_later)).count(), 3);
    }
}
