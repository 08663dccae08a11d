//! Memory that many closed connections leave behind. The allocator keeps free pages between those in use, so it is told to give them back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// After the first close, so that one pass serves those that follow.
const DELAY: Duration = Duration::from_secs(5);

static PLANNED: AtomicBool = AtomicBool::new(false);

pub fn give_back_soon() {
    if PLANNED.swap(true, Ordering::SeqCst) {
        return;
    }
    tokio::spawn(async {
        tokio::time::sleep(DELAY).await;
        PLANNED.store(false, Ordering::SeqCst);
        // It walks the heaps under their locks: not on a thread that serves connections.
        let _ = tokio::task::spawn_blocking(|| {
            // SAFETY: malloc_trim takes no pointer and may be called at any time.
            unsafe { libc::malloc_trim(0) }
        })
        .await;
    });
}
