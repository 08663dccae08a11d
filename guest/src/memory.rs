//! Memory of the sandbox: of its cgroup where that is visible, else of the machine.

use crate::json::{object, Value};
use std::fs;

struct Group {
    used: &'static str,
    limit: &'static str,
    stat: &'static str,
    cache_key: &'static str,
}

const GROUPS: [Group; 2] = [
    Group {
        used: "/sys/fs/cgroup/memory.current",
        limit: "/sys/fs/cgroup/memory.max",
        stat: "/sys/fs/cgroup/memory.stat",
        cache_key: "inactive_file",
    },
    Group {
        used: "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        limit: "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        stat: "/sys/fs/cgroup/memory/memory.stat",
        cache_key: "total_inactive_file",
    },
];

/// Used bytes are without file cache that could be dropped at once.
pub fn memory() -> Value {
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = kilobytes(&machine, "MemTotal:");
    for group in &GROUPS {
        if let Some(used) = number(group.used) {
            let cache = fs::read_to_string(group.stat).ok().and_then(|text| field(&text, group.cache_key)).unwrap_or(0);
            // "max", or a number beyond all memory, is no limit.
            let limit = number(group.limit).unwrap_or(u64::MAX).min(total);
            return answer(used.saturating_sub(cache), limit);
        }
    }
    answer(total.saturating_sub(kilobytes(&machine, "MemAvailable:")), total)
}

fn answer(used: u64, limit: u64) -> Value {
    object([("ok", true.into()), ("usedBytes", used.into()), ("limitBytes", limit.into())])
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn field(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
}

fn kilobytes(text: &str, key: &str) -> u64 {
    field(text, key).unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let text = "MemTotal:        2048 kB\nMemFree: 1 kB\ninactive_file 77\n";
        assert_eq!(kilobytes(text, "MemTotal:"), 2 << 20);
        assert_eq!(field(text, "inactive_file"), Some(77));
        assert_eq!(field(text, "missing"), None);
    }
}
