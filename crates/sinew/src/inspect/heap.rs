//! Finds the bounds of blocks in the heap of the C library.
//!
//! The allocator of glibc writes the size of each block before the block, and blocks follow each
//! other: in the heap that the kernel calls `[heap]`, in areas that begin at a multiple of 64 MiB,
//! and in mappings of one block each. An area counts only if its blocks fill it to the end, so
//! memory of another allocator is not mistaken for such blocks.
//!
//! Other threads allocate meanwhile. The kernel reads the memory for this module, as it does for a
//! debugger. A block that changes meanwhile is not found, or is found as it was before the change.

use super::memory;
use super::scan::Region;

/// A block of the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether the block is free, as far as the allocator's marks tell.
    pub(super) free: bool,
}

/// All areas with readable blocks.
pub(super) struct Heap {
    areas: Vec<Area>,
    /// Allocated once and kept: a buffer that is allocated between two looks would move blocks.
    reader: Reader,
    /// The value that the allocator writes to the second word of small free blocks that a thread
    /// keeps for itself.
    kept: Option<usize>,
}

struct Area {
    start: usize,
    /// The address of the first header.
    first: usize,
    end: usize,
    mapped: bool,
    /// The last header up to each multiple of [`STEP`] after `start`. Disguised, because memory is
    /// searched for pointers meanwhile.
    marks: Vec<usize>,
}

/// Distance between remembered headers.
const STEP: usize = 64 * 1024;
/// Bytes before a block. The first half belongs to the previous block while that is in use.
const HEADER: usize = 16;
const WORD: usize = size_of::<usize>();
/// Flags in the word that has the size.
const PREVIOUS_IN_USE: usize = 1;
const MAPPED: usize = 2;
const FLAGS: usize = 7;

impl Heap {
    /// Reads the parts of the address space that may contain blocks.
    pub(super) fn look(regions: &[Region]) -> Heap {
        if !cfg!(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")) {
            return Heap { areas: Vec::new(), kept: None, reader: Reader::new() };
        }
        let kept = kept_mark();
        let mut reader = Reader::new();
        let areas = regions.iter().filter_map(|region| area_in(region, &mut reader)).collect();
        reader.bytes.clear();
        Heap { areas, kept, reader }
    }

    /// Forgets the blocks that were read, because they change.
    pub(super) fn forget(&mut self) {
        self.reader.bytes.clear();
    }

    /// Whether an address is in the reader's buffer or in the allocator's bookkeeping. Pointers
    /// there have no user.
    pub(super) fn has(&self, address: usize) -> bool {
        self.reader.bytes.as_ptr_range().contains(&core::ptr::without_provenance(address))
            || self.areas.iter().any(|area| (area.start..area.first).contains(&address))
    }

    /// Returns the block that contains an address.
    pub(super) fn find(&mut self, address: usize) -> Option<Block> {
        let area = self.areas.iter().find(|area| (area.start..area.end).contains(&address))?;
        // The word before a header belongs to the previous block.
        let offset = address.checked_sub(area.start + HEADER)?;
        let mark = !*area.marks.get(offset / STEP)?;
        let (kept, reader) = (self.kept, &mut self.reader);
        // The block at a mark may have been freed and merged with another. Then begin again at the
        // first block.
        area.find_from(mark, address, kept, reader)
            .or_else(|| area.find_from(area.first, address, kept, reader))
    }
}

impl Area {
    fn find_from(
        &self,
        mut header: usize,
        address: usize,
        kept: Option<usize>,
        reader: &mut Reader,
    ) -> Option<Block> {
        let area = self;
        let mut found = None;
        reader.end = area.end;
        while header < area.end {
            let size = size_at(reader, header, area.end)?;
            let next = header + size;
            let end = if area.mapped { next } else { next + WORD };
            if address < end {
                found = (address >= header + HEADER).then_some((
                    header + HEADER,
                    end.min(area.end),
                    next,
                ));
                break;
            }
            header = next;
        }
        let (start, end, next) = found?;
        let free = !area.mapped
            && (next >= area.end
                || reader.word(next + WORD)? & PREVIOUS_IN_USE == 0
                || kept.is_some() && reader.word(start + WORD) == kept);
        Some(Block { start, end, free })
    }
}

/// Reads a region as an area, if blocks fill it.
fn area_in(region: &Region, reader: &mut Reader) -> Option<Area> {
    /// Areas of threads begin at a multiple of this.
    const ALIGNED: usize = 64 << 20;
    /// Offset of the size in the description of an area, after the arena and the previous area.
    const SIZE: usize = 2 * WORD;
    /// More than the descriptions take.
    const MOST: usize = 8 * 1024;
    let Region { start, end, .. } = *region;
    if region.heap {
        return Area::walk((start, start, end), false, reader);
    }
    if start.is_multiple_of(ALIGNED) {
        let end = start.checked_add(memory::word(start + SIZE).ok()?)?;
        // The area may have grown since the region was read.
        if end <= start + ALIGNED && end > start + MOST {
            let mut firsts = (start + 4 * WORD..start + MOST).step_by(HEADER);
            return firsts.find_map(|first| Area::walk((start, first, end), false, reader));
        }
    }
    let size = memory::word(start + WORD).ok()?;
    (size & FLAGS == MAPPED).then(|| Area::walk((start, start, end), true, reader))?
}

impl Area {
    fn walk(
        (start, first, end): (usize, usize, usize),
        mapped: bool,
        reader: &mut Reader,
    ) -> Option<Area> {
        let mut marks = Vec::new();
        if reader.end != end {
            reader.begin(end);
        }
        let (mut header, mut last) = (first, first);
        while header < end {
            if marks.capacity() == 0 {
                // Allocate once the first block makes sense, so that nothing is allocated for
                // regions without blocks.
                size_at(reader, header, end)?;
                marks.reserve_exact((end - start) / STEP + 2);
                reader.begin(end);
            }
            while start + marks.len() * STEP < header {
                marks.push(!last);
            }
            last = header;
            let size = match size_at(reader, header, end) {
                Some(size) => size,
                // When the allocator goes on to another area, it ends this one with headers without
                // blocks.
                None if !mapped && end - header <= 4 * HEADER => break,
                None => return None,
            };
            if mapped && reader.word(header + WORD)? & FLAGS != MAPPED {
                return None;
            }
            header += size;
        }
        while start + marks.len() * STEP < end {
            marks.push(!last);
        }
        Some(Area { start, first, end, mapped, marks })
    }
}

/// Returns the size in a header, if it is plausible.
fn size_at(reader: &mut Reader, header: usize, end: usize) -> Option<usize> {
    let size = reader.word(header + WORD)? & !FLAGS;
    let fits = size >= 2 * HEADER && size.is_multiple_of(HEADER) && size <= end - header;
    fits.then_some(size)
}

/// Finds the mark in small blocks that a thread has freed and keeps for itself. All of them have
/// one mark.
fn kept_mark() -> Option<usize> {
    let mark = |size| {
        // SAFETY: the block is our own. After it was freed, only the kernel reads it.
        let address = unsafe {
            let block = libc::malloc(size);
            libc::free(block);
            block.addr()
        };
        (address != 0).then(|| memory::word(address + WORD).ok())?
    };
    let (first, second) = (mark(40)?, mark(200)?);
    (first == second && first != 0).then_some(first)
}

/// Reads successive words with few system calls.
struct Reader {
    at: usize,
    end: usize,
    bytes: Vec<u8>,
}

impl Reader {
    fn new() -> Reader {
        Reader { at: 0, end: 0, bytes: Vec::with_capacity(STEP) }
    }

    /// Forgets the words that were read. Later reads go up to `end`.
    fn begin(&mut self, end: usize) {
        self.bytes.clear();
        self.end = end;
    }

    fn word(&mut self, address: usize) -> Option<usize> {
        if address < self.at || address + WORD > self.at + self.bytes.len() {
            let len = STEP.min(self.end.checked_sub(address)?);
            self.bytes.resize(len, 0);
            self.at = address;
            // A part of the range cannot be read. The word alone may be readable.
            if memory::copy(address, &mut self.bytes).is_err() {
                self.bytes.clear();
                return memory::word(address).ok();
            }
        }
        let offset = address - self.at;
        let bytes = self.bytes.get(offset..offset + WORD)?;
        Some(usize::from_ne_bytes(bytes.try_into().expect("the slice has the size of a word")))
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu", not(any(sinew_asan, sinew_tsan))))]
mod tests {
    use super::super::scan::regions;
    use super::*;

    fn find(address: usize) -> Option<Block> {
        Heap::look(&regions().unwrap()).find(address)
    }

    #[test]
    fn a_block_is_found_from_any_address_in_it() {
        let check = || {
            for size in [1, 24, 25, 100, 5000, 300_000, 40 << 20] {
                let memory = vec![1_u8; size];
                let start = memory.as_ptr().addr();
                for address in [start, start + size / 2, start + size - 1] {
                    let block = (0..100).find_map(|_| find(address));
                    // Other threads may move blocks during one search, but not during all hundred.
                    let block = block.unwrap_or_else(|| panic!("{size}: {address:#x}"));
                    assert_eq!(block.start, start, "{size}");
                    assert!(block.end >= start + size && block.end < start + size + 8192, "{size}");
                    assert!(!block.free, "{size}");
                }
            }
        };
        check();
        // Another thread has an area of its own.
        std::thread::spawn(check).join().unwrap();
    }

    #[test]
    fn a_block_that_was_freed_is_free_or_not_found() {
        for size in [40, 400, 4000, 100_000] {
            let memory = vec![1_u8; size];
            let address = memory.as_ptr().addr() + size / 2;
            let mut heap = Heap::look(&regions().unwrap());
            drop(memory);
            assert!(heap.find(address).is_none_or(|block| block.free), "{size}");
        }
    }

    #[test]
    fn stacks_and_statics_are_no_blocks() {
        static STATIC: AtomicUsize = AtomicUsize::new(1);
        use std::sync::atomic::AtomicUsize;
        let local = 0_u8;
        assert_eq!(find((&raw const local).addr()), None);
        assert_eq!(find((&raw const STATIC).addr()), None);
    }
}
