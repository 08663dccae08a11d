//! An allocator that zeroes what is freed. Values of secrets pass through buffers of many libraries (JSON, HTTP, TLS); none of them clears what it
//! lets go of.

use std::alloc::{GlobalAlloc, Layout, System};

pub struct Zeroing;

// SAFETY: memory is the system's; `realloc` is the trait's own, which frees through `dealloc`.
unsafe impl GlobalAlloc for Zeroing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        System.alloc_zeroed(layout)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        libc::explicit_bzero(at.cast(), layout.size());
        System.dealloc(at, layout);
    }
}
