//! Looking for a word in all memory of the process.
//!
//! Only what is resident and may be written is looked at. It changes meanwhile: what is said was so at
//! some moment for each word, not at one moment for all.

use super::memory;
use std::fs::File;
use std::io;

/// A part of the address space that can be read and written.
pub(super) struct Region {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether below it there is memory that can be neither: it may be the stack of a thread.
    pub(super) guarded: bool,
    /// Whether the kernel calls it the stack of the first thread.
    first_stack: bool,
    /// Whether the kernel calls it the heap.
    pub(super) heap: bool,
}

/// All such parts.
pub(super) fn regions() -> io::Result<Vec<Region>> {
    let text = std::fs::read_to_string("/proc/self/maps")?;
    let mut regions = Vec::new();
    // Where the last one without access ended.
    let mut barrier = 0;
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let range = fields.next().and_then(|range| range.split_once('-'));
        let address = |text| usize::from_str_radix(text, 16).ok();
        let Some((Some(start), Some(end))) =
            range.map(|(start, end)| (address(start), address(end)))
        else {
            return Err(io::Error::other(format!("not understood in /proc/self/maps: {line}")));
        };
        let access = fields.next().unwrap_or("");
        if access.starts_with("---") {
            barrier = end;
        }
        let name = fields.nth(3);
        // What devices have mapped is not for reading.
        if access.starts_with("rw") && !name.is_some_and(|name| name.starts_with("/dev/")) {
            let (first_stack, heap) = (name == Some("[stack]"), name == Some("[heap]"));
            regions.push(Region { start, end, guarded: barrier == start, first_stack, heap });
        }
    }
    Ok(regions)
}

/// The parts of stacks of threads that are not in use, as far as the kernel tells where those who wait in
/// it are.
pub(super) fn unused_stacks(regions: &[Region]) -> Vec<(usize, usize)> {
    /// What functions may use below where the stack ends.
    const RED_ZONE: usize = 128;
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let ends = threads.flatten().filter_map(|thread| {
        let line = std::fs::read_to_string(thread.path().join("syscall")).ok()?;
        // The last two of them are where the stack ends, and where it goes on.
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

/// Bytes that are looked at in one go.
const BLOCK: usize = 256 * 1024;

/// Looks at memory, with a buffer for what is copied.
pub(super) struct Scanner {
    buffer: Box<[u8]>,
    page: usize,
    pages: Option<File>,
}

impl Scanner {
    pub(super) fn new() -> Scanner {
        Scanner {
            buffer: vec![0; BLOCK].into(),
            // SAFETY: no preconditions.
            page: unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize,
            pages: File::open("/proc/self/pagemap").ok(),
        }
    }

    /// Whether an address is in the scanner's own buffer, in which there are copies.
    pub(super) fn has(&self, address: usize) -> bool {
        self.buffer.as_ptr_range().contains(&core::ptr::without_provenance(address))
    }

    /// Calls `each` with every word from `start` on and where it is, up to `end`.
    pub(super) fn words(&mut self, start: usize, end: usize, mut each: impl FnMut(usize, usize)) {
        let mut at = start.next_multiple_of(WORD);
        while at + WORD <= end {
            let next = (at - at % self.page + BLOCK).min(end);
            if !self.copied_words(at, next, &mut each) {
                // Some of it was unmapped meanwhile, or is a guard.
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

    /// The same in a part that is copied as a whole; false if it cannot be.
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

    /// The parts of a region that are resident, or were. All of it, if the kernel does not tell.
    pub(super) fn resident(&self, region: &Region) -> Vec<(usize, usize)> {
        let (start, end) = (region.start, region.end);
        let Some(file) = &self.pages else { return vec![(start, end)] };
        resident::walked(file, start, end)
            .or_else(|_| resident::read(file, self.page, start, end))
            .unwrap_or_else(|_| vec![(start, end)])
    }
}

/// Asking the kernel which pages are there, by `/proc/self/pagemap`.
mod resident {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;

    /// As the kernel walks its tables, which passes over what was never touched, however large that is.
    /// Since Linux 6.7.
    #[cfg(target_os = "linux")]
    pub(super) fn walked(
        file: &File,
        mut start: usize,
        end: usize,
    ) -> io::Result<Vec<(usize, usize)>> {
        use std::os::fd::AsRawFd;
        /// What is asked.
        #[repr(C)]
        #[derive(Default)]
        struct Scan {
            size: u64,
            flags: u64,
            start: u64,
            end: u64,
            /// Where it has stopped.
            walk_end: u64,
            parts: u64,
            parts_len: u64,
            max_pages: u64,
            inverted: u64,
            mask: u64,
            any_of: u64,
            wanted: u64,
        }
        /// What is told.
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
            // SAFETY: as the call asks: a valid description, with room for as many parts as it says.
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

    /// Page by page.
    pub(super) fn read(
        file: &File,
        page: usize,
        start: usize,
        end: usize,
    ) -> io::Result<Vec<(usize, usize)>> {
        /// Bits of what is known of a page: it is resident, or in the swap.
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
        // Not on the stack, and not as it is.
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
        // More than could be looked at page by page.
        const SIZE: usize = 1 << 40;
        // SAFETY: a new mapping.
        let memory = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(core::ptr::null_mut(), SIZE, access, flags, -1, 0)
        };
        if memory == libc::MAP_FAILED {
            // There is a limit to how much may be reserved.
            return;
        }
        let scanner = Scanner::new();
        let start = memory.addr();
        let region = |end| Region { start, end, guarded: false, first_stack: false, heap: false };
        let file = scanner.pages.as_ref().unwrap();
        let few = start + (64 << 20);
        assert!(resident::read(file, scanner.page, start, few).unwrap().is_empty());
        let touched = start + (32 << 20);
        // SAFETY: inside the mapping.
        unsafe { memory.cast::<u8>().add(32 << 20).write(1) };
        let has = |parts: &[(usize, usize)]| {
            assert!(!parts.is_empty() && parts.len() < 10, "{parts:x?}");
            parts.iter().any(|(from, to)| (*from..*to).contains(&touched))
        };
        assert!(has(&resident::read(file, scanner.page, start, few).unwrap()));
        // Older kernels do not have the other way.
        if resident::walked(file, start, few).is_ok() {
            assert!(has(&scanner.resident(&region(start + SIZE))));
        }
        // SAFETY: ours.
        unsafe { libc::munmap(memory, SIZE) };
    }
}
