//! Unwinds a copy of a stack: from its registers to the addresses of its frames.
//!
//! The unwinder uses copies of the loaded objects' tables. It makes new copies whenever an object
//! is loaded or unloaded. So a walk reads nothing that may vanish.

use super::StackCopy;
use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module,
    UnwindRegsNative, Unwinder, UnwinderNative,
};
use std::sync::{Mutex, PoisonError};

/// The registers that a walk begins with.
pub(super) struct Start {
    pub(super) instruction: usize,
    pub(super) stack: usize,
    pub(super) frame: usize,
    #[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "it is on the stack there"))]
    pub(super) link: usize,
}

/// Returns the addresses of the frames on a stack, the innermost first, `limit` at most. The
/// address of a calling frame lies inside its call instruction.
pub(super) fn walk(start: Start, stack: &StackCopy, limit: usize) -> Vec<usize> {
    static WALKER: Mutex<Option<Walker>> = Mutex::new(None);
    let mut walker = WALKER.lock().unwrap_or_else(PoisonError::into_inner);
    let version = objects::version();
    if walker.as_ref().is_none_or(|walker| walker.version != version) {
        *walker = Some(Walker::new(version));
    }
    walker.as_mut().map_or_else(Vec::new, |walker| walker.walk(start, stack, limit))
}

type Tables = Vec<u8>;

struct Walker {
    /// The version of the loaded objects.
    version: (u64, u64),
    unwinder: UnwinderNative<Tables, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
}

impl Walker {
    fn new(version: (u64, u64)) -> Walker {
        let mut unwinder = UnwinderNative::new();
        for object in objects::loaded() {
            let svma = |range: &core::ops::Range<usize>| {
                Some((range.start - object.base) as u64..(range.end - object.base) as u64)
            };
            unwinder.add_module(Module::new(
                object.name,
                object.range.start as u64..object.range.end as u64,
                object.base as u64,
                ExplicitModuleSectionInfo {
                    base_svma: 0,
                    eh_frame_svma: svma(&object.frames.0),
                    eh_frame: Some(object.frames.1),
                    eh_frame_hdr_svma: svma(&object.index.0),
                    eh_frame_hdr: Some(object.index.1),
                    ..Default::default()
                },
            ));
        }
        Walker { version, unwinder, cache: CacheNative::new() }
    }

    fn walk(&mut self, start: Start, stack: &StackCopy, limit: usize) -> Vec<usize> {
        let (sp, fp) = (start.stack as u64, start.frame as u64);
        let instruction = start.instruction as u64;
        #[cfg(target_arch = "x86_64")]
        let registers = UnwindRegsNative::new(instruction, sp, fp);
        #[cfg(target_arch = "aarch64")]
        let registers = UnwindRegsNative::new(start.link as u64, sp, fp);
        let mut read =
            |address: u64| stack.word(address as usize).map(|word| word as u64).ok_or(());
        let mut frames =
            self.unwinder.iter_frames(instruction, registers, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        while addresses.len() < limit
            && let Ok(Some(frame)) = frames.next()
        {
            let address = match frame {
                FrameAddress::InstructionPointer(address) => address,
                FrameAddress::ReturnAddress(address) => u64::from(address) - 1,
            };
            addresses.push(address as usize);
        }
        addresses
    }
}

/// The objects that the dynamic linker has loaded.
pub(super) mod objects {
    use core::ffi::{CStr, c_int, c_void};
    use core::ops::Range;

    pub(super) struct Object {
        pub(super) name: String,
        /// The offset from addresses in the file to addresses in memory.
        pub(super) base: usize,
        pub(super) range: Range<usize>,
        /// The table of frames and its index: their ranges in memory, and copies.
        pub(super) frames: (Range<usize>, Vec<u8>),
        pub(super) index: (Range<usize>, Vec<u8>),
    }

    /// Returns how many objects were loaded and unloaded so far.
    pub(in super::super) fn version() -> (u64, u64) {
        /// # Safety
        /// `info` is an entry of the linker, and `out` points to a pair of `u64`.
        unsafe extern "C" fn each(
            info: *mut libc::dl_phdr_info,
            _size: usize,
            out: *mut c_void,
        ) -> c_int {
            // SAFETY: `out` is the pointer that was given to `dl_iterate_phdr`. Every entry has the
            // same counts.
            unsafe {
                *out.cast::<(u64, u64)>() = ((*info).dlpi_adds, (*info).dlpi_subs);
            }
            1
        }
        let mut version = (0, 0);
        // SAFETY: `each` writes to a pair of `u64`, which `version` is.
        unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut version).cast()) };
        version
    }

    pub(super) fn loaded() -> Vec<Object> {
        /// # Safety
        /// `info` is an entry of the linker, and `out` points to a `Vec<Object>`.
        unsafe extern "C" fn each(
            info: *mut libc::dl_phdr_info,
            _size: usize,
            out: *mut c_void,
        ) -> c_int {
            // SAFETY: `out` is the pointer that was given to `dl_iterate_phdr`. The linker keeps
            // the object loaded while this function runs.
            unsafe {
                if let Some(object) = read(&*info) {
                    (*out.cast::<Vec<Object>>()).push(object);
                }
            }
            0
        }
        let mut objects: Vec<Object> = Vec::new();
        // SAFETY: `each` pushes to a `Vec<Object>`, which `objects` is.
        unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut objects).cast()) };
        objects
    }

    /// Copies the tables of an object. Returns `None` if it has none that the unwinder can use.
    ///
    /// # Safety
    /// The object is loaded, and stays loaded during the call.
    unsafe fn read(info: &libc::dl_phdr_info) -> Option<Object> {
        // SAFETY: the object is loaded, as the caller ensures, and the headers belong to it.
        unsafe {
            let base = info.dlpi_addr as usize;
            let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            let at = |header: &libc::Elf64_Phdr| {
                let start = base + header.p_vaddr as usize;
                start..start + header.p_memsz as usize
            };
            let segments =
                || headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(at);
            let range = segments().map(|range| range.start).min()?
                ..segments().map(|range| range.end).max()?;
            let index = at(headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?);
            let frames = first_of_index(&index)?;
            let segment = segments().find(|segment| segment.contains(&frames))?;
            let frames = frames..segment.end;
            let name = match CStr::from_ptr(info.dlpi_name).to_string_lossy() {
                name if name.is_empty() => "program".to_owned(),
                name => name.into_owned(),
            };
            let bytes = |range: &Range<usize>| {
                let start = core::ptr::with_exposed_provenance::<u8>(range.start);
                core::slice::from_raw_parts(start, range.len()).to_vec()
            };
            let (frames_copy, index_copy) = (bytes(&frames), bytes(&index));
            Some(Object {
                name,
                base,
                range,
                frames: (frames, frames_copy),
                index: (index, index_copy),
            })
        }
    }

    /// Returns the address of the table that an index belongs to. The index contains the distance
    /// from itself to the table.
    ///
    /// # Safety
    /// `index` is the range of an index of a loaded object, which stays loaded during the call.
    unsafe fn first_of_index(index: &Range<usize>) -> Option<usize> {
        /// A signed distance of four bytes, relative to its own address.
        const RELATIVE: u8 = 0x1b;
        let start = core::ptr::with_exposed_provenance::<u8>(index.start);
        // SAFETY: the head of an index has four bytes, followed by the distance.
        unsafe {
            let [version, encoding] = [*start, *start.add(1)];
            let distance = start.add(4).cast::<i32>().read_unaligned();
            (version == 1 && encoding == RELATIVE)
                .then(|| (index.start + 4).wrapping_add_signed(distance as isize))
        }
    }
}
