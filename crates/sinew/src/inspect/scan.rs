//! Searches all memory of the process, word by word.
//!
//! The search covers writable memory that is resident or swapped out. The memory changes meanwhile:
//! each word had the reported value at some moment, but not all words at one moment.

use super::memory;
use std::fs::File;
use std::io;

/// A part of the address space that can be read and written.
pub(super) struct Region {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether inaccessible memory lies directly below. Then this may be the stack of a thread.
    pub(super) guarded: bool,
    /// Whether the kernel calls this region the stack of the first thread.
    first_stack: bool,
    /// Whether the kernel calls this region the heap.
    pub(super) heap: bool,
}

/// Returns all parts of the address space that can be read and written.
pub(super) fn regions() -> io::Result<Vec<Region>> {
    let text = std::fs::read_to_string("/proc/self/maps")?;
    let mut regions = Vec::new();
    // The end of the last region without access.
    let mut barrier = 0;
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let range = fields.next().and_then(|range| range.split_once('-'));
        let address = |text| usize::from_str_radix(text, 16).ok();
        let Some((Some(start), Some(end))) =
            range.map(|(start, end)| (address(start), address(end)))
        else {
            return Err(io::Error::other(format!("cannot parse /proc/self/maps: {line}")));
        };
        let access = fields.next().unwrap_or("");
        if access.starts_with("---") {
            barrier = end;
        }
        let name = fields.nth(3);
        // Memory that a device has mapped is not for reading.
        if access.starts_with("rw") && !name.is_some_and(|name| name.starts_with("/dev/")) {
            let (first_stack, heap) = (name == Some("[stack]"), name == Some("[heap]"));
            regions.push(Region { start, end, guarded: barrier == start, first_stack, heap });
        }
    }
    Ok(regions)
}

/// Returns the unused parts of the stacks of threads that wait in the kernel, as far as the kernel
/// tells where those threads are.
pub(super) fn unused_stacks(regions: &[Region]) -> Vec<(usize, usize)> {
    /// Bytes below the stack pointer that functions may use.
    const RED_ZONE: usize = 128;
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let ends = threads.flatten().filter_map(|thread| {
        let line = std::fs::read_to_string(thread.path().join("syscall")).ok()?;
        // The last two fields are the stack pointer and the instruction pointer.
        let end = line.split_ascii_whitespace().rev().nth(1)?.strip_prefix("0x")?;
        usize::from_str_radix(end, 16).ok()
    });
    ends.filter_map(|end| {
        let region = regions.iter().find(|region| (region.start..region.end).contains(&end))?;
        let known = region.guarded || region.first_stack;
        known.then_some((region.start, end.saturating_sub(RED_ZONE)))
    })
    .collect()
}

const WORD: usize = size_of::<usize>();

/// Bytes that are copied at once.
const BLOCK: usize = 256 * 1024;

/// Reads memory through a buffer.
pub(super) struct Scanner {
    buffer: Box<[u8]>,
    page: usize,
    pages: Option<File>,
}

impl Scanner {
    pub(super) fn new() -> Scanner {
        Scanner {
            buffer: vec![0; BLOCK].into(),
            // SAFETY: `sysconf` has no preconditions.
            page: unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize,
            pages: File::open("/proc/self/pagemap").ok(),
        }
    }

    /// Whether an address is in the scanner's own buffer, which contains copies of pointers.
    pub(super) fn has(&self, address: usize) -> bool {
        self.buffer.as_ptr_range().contains(&core::ptr::without_provenance(address))
    }

    /// Calls `each` with the address and the value of every word from `start` to `end`.
    pub(super) fn words(&mut self, start: usize, end: usize, mut each: impl FnMut(usize, usize)) {
        let mut at = start.next_multiple_of(WORD);
        while at + WORD <= end {
            let next = (at - at % self.page + BLOCK).min(end);
            if !self.copied_words(at, next, &mut each) {
                // A part was unmapped meanwhile, or is a guard.
                let mut page = at;
                while page < next {
                    let end = (page - page % self.page + self.page).min(next);
                    self.copied_words(page, end, &mut each);
                    page = end;
                }
            }
            at = next;
        }
    }

    /// Calls `each` for every word of a part that is copied at once. Returns false if it cannot be
    /// copied.
    fn copied_words(
        &mut self,
        from: usize,
        to: usize,
        each: &mut impl FnMut(usize, usize),
    ) -> bool {
        let len = (to - from) / WORD * WORD;
        if memory::copy(from, &mut self.buffer[..len]).is_err() {
            return false;
        }
        let (words, _) = self.buffer[..len].as_chunks::<WORD>();
        for (index, word) in words.iter().enumerate() {
            each(from + index * WORD, usize::from_ne_bytes(*word));
        }
        true
    }

    /// Returns the parts of a region that are resident or swapped out; the whole region if the
    /// kernel does not tell.
    pub(super) fn resident(&self, region: &Region) -> Vec<(usize, usize)> {
        let (start, end) = (region.start, region.end);
        let Some(file) = &self.pages else { return vec![(start, end)] };
        resident::walked(file, start, end)
            .or_else(|_| resident::read(file, self.page, start, end))
            .unwrap_or_else(|_| vec![(start, end)])
    }
}

/// Asks the kernel which pages are there, through `/proc/self/pagemap`.
mod resident {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;

    /// Lets the kernel walk its page tables, which skips untouched memory of any size. Linux has
    /// this call since version 6.7.
    #[cfg(target_os = "linux")]
    pub(super) fn walked(
        file: &File,
        mut start: usize,
        end: usize,
    ) -> io::Result<Vec<(usize, usize)>> {
        use std::os::fd::AsRawFd;
        /// The request: `struct pm_scan_arg` of the kernel.
        #[repr(C)]
        #[derive(Default)]
        struct Scan {
            size: u64,
            flags: u64,
            start: u64,
            end: u64,
            /// Where the kernel has stopped.
            walk_end: u64,
            parts: u64,
            parts_len: u64,
            max_pages: u64,
            inverted: u64,
            mask: u64,
            any_of: u64,
            wanted: u64,
        }
        /// An element of the answer: `struct page_region` of the kernel.
        #[repr(C)]
        #[derive(Clone, Copy, Default)]
        struct Part {
            start: u64,
            end: u64,
            categories: u64,
        }
        const PAGEMAP_SCAN: u64 = 0xC060_6610;
        const PRESENT_OR_SWAPPED: u64 = 1 << 3 | 1 << 4;
        const { assert!(size_of::<Scan>() == 0x60) };
        let mut found = Vec::new();
        let mut parts = vec![Part::default(); 1024];
        while start < end {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                start: start as u64,
                end: end as u64,
                parts: parts.as_mut_ptr().expose_provenance() as u64,
                parts_len: parts.len() as u64,
                any_of: PRESENT_OR_SWAPPED,
                wanted: PRESENT_OR_SWAPPED,
                ..Scan::default()
            };
            // SAFETY: the request is valid, and has room for the number of parts that it says.
            let count = unsafe { libc::ioctl(file.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut scan) };
            let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
            found
                .extend(parts[..count].iter().map(|part| (part.start as usize, part.end as usize)));
            if scan.walk_end as usize <= start {
                break;
            }
            start = scan.walk_end as usize;
        }
        Ok(found)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn walked(_: &File, _: usize, _: usize) -> io::Result<Vec<(usize, usize)>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Reads one entry for each page.
    pub(super) fn read(
        file: &File,
        page: usize,
        start: usize,
        end: usize,
    ) -> io::Result<Vec<(usize, usize)>> {
        /// Bits of a page's entry: the page is resident, or swapped out.
        const THERE: u64 = 0b11 << 62;
        let mut found: Vec<(usize, usize)> = Vec::new();
        let mut known = vec![[0; 8]; 64 * 1024];
        for first in (start / page..end / page).step_by(known.len()) {
            let count = known.len().min(end / page - first);
            file.read_exact_at(known[..count].as_flattened_mut(), first as u64 * 8)?;
            for (index, bits) in known[..count].iter().enumerate() {
                if u64::from_ne_bytes(*bits) & THERE == 0 {
                    continue;
                }
                let (from, to) = ((first + index) * page, (first + index + 1) * page);
                match found.last_mut() {
                    Some((_, last)) if *last == from => *last = to,
                    _ => found.push((from, to)),
                }
            }
        }
        Ok(found)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_where_it_is() {
        // Keep the wanted word off the stack and out of memory, except disguised.
        let place = Box::new(core::hint::black_box(0x5EED_0BAD_F00D_u64 ^ 0xFFFF));
        let wanted = core::hint::black_box(0x5EED_0BAD_F00D_u64);
        let at = (&raw const *place).addr();
        let mut found = false;
        let mut scanner = Scanner::new();
        for region in regions().unwrap() {
            for (start, end) in scanner.resident(&region) {
                scanner.words(start, end, |address, word| {
                    found |= address == at && word as u64 ^ 0xFFFF == wanted;
                });
            }
        }
        assert!(found);
    }

    #[test]
    fn the_stack_of_a_thread_that_waits_is_known() {
        if cfg!(sinew_asan) {
            // The sanitizer keeps locals off the stack.
            return;
        }
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let here = 0_u8;
            tell.send((&raw const here).addr()).unwrap();
            let _ = ended.recv();
        });
        let here = told.recv().unwrap();
        let known = || {
            let unused = unused_stacks(&regions().unwrap());
            unused
                .into_iter()
                .find(|(start, end)| (here - (1 << 20)..here).contains(end) && *start < *end)
        };
        while known().is_none() {
            std::thread::yield_now();
        }
        let (start, unused) = known().unwrap();
        assert!(start < unused && unused < here);
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn touched_pages_are_resident() {
        // More than could be read page by page.
        const SIZE: usize = 1 << 40;
        // SAFETY: this is a new mapping.
        let memory = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(core::ptr::null_mut(), SIZE, access, flags, -1, 0)
        };
        if memory == libc::MAP_FAILED {
            // The system may limit how much can be reserved.
            return;
        }
        let scanner = Scanner::new();
        let start = memory.addr();
        let region = |end| Region { start, end, guarded: false, first_stack: false, heap: false };
        let file = scanner.pages.as_ref().unwrap();
        let few = start + (64 << 20);
        assert!(resident::read(file, scanner.page, start, few).unwrap().is_empty());
        let touched = start + (32 << 20);
        // SAFETY: the address is inside the mapping.
        unsafe { memory.cast::<u8>().add(32 << 20).write(1) };
        let has = |parts: &[(usize, usize)]| {
            assert!(!parts.is_empty() && parts.len() < 10, "{parts:x?}");
            parts.iter().any(|(from, to)| (*from..*to).contains(&touched))
        };
        assert!(has(&resident::read(file, scanner.page, start, few).unwrap()));
        // Older kernels do not have `PAGEMAP_SCAN`.
        if resident::walked(file, start, few).is_ok() {
            assert!(has(&scanner.resident(&region(start + SIZE))));
        }
        // SAFETY: the mapping is this test's own.
        unsafe { libc::munmap(memory, SIZE) };
    }
}
