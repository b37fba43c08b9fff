//! Measures how much of a stack was ever touched, from the kernel's page tables.

use super::page_size;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Returns the number of bytes from the end of the range down to its lowest touched page.
pub(super) fn touched_from(low: usize, size: usize) -> Option<usize> {
    let page = page_size();
    let pages = size / page;
    let pagemap =
        if cfg!(sinew_force_fallback) { None } else { first_in_pagemap(low / page, pages) };
    let first = pagemap.or_else(|| first_resident(low, pages, page))?;
    Some(size - first * page)
}

/// Finds the first page of the range that is present or swapped out; `pages` if there is none.
fn first_in_pagemap(start: usize, pages: usize) -> Option<usize> {
    const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
    const BATCH: usize = 512;
    let pagemap = File::open("/proc/self/pagemap").ok()?;
    let mut entries = [0; 8 * BATCH];
    for batch in (0..pages).step_by(BATCH) {
        let count = BATCH.min(pages - batch);
        let bytes = &mut entries[..8 * count];
        pagemap.read_exact_at(bytes, 8 * (start + batch) as u64).ok()?;
        let touched = bytes.chunks_exact(8).position(|entry| {
            u64::from_ne_bytes(entry.try_into().expect("eight bytes")) & PRESENT_OR_SWAPPED != 0
        });
        if let Some(index) = touched {
            return Some(batch + index);
        }
    }
    Some(pages)
}

/// Finds the first resident page without /proc. Misses pages that were swapped out.
fn first_resident(low: usize, pages: usize, page: usize) -> Option<usize> {
    let mut resident = vec![0_u8; pages];
    let start = core::ptr::without_provenance_mut(low);
    // SAFETY: the vector has one byte for each page of the range. An unmapped page is an error.
    let result = unsafe { libc::mincore(start, pages * page, resident.as_mut_ptr().cast()) };
    if result != 0 {
        return None;
    }
    Some(resident.iter().position(|state| state & 1 != 0).unwrap_or(pages))
}
