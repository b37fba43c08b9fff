//! Announces stacks and switches to AddressSanitizer, ThreadSanitizer and valgrind.
//!
//! The two sanitizers keep state per stack, and must be told of each switch before and after it
//! happens. The calls are compiled in under `--cfg sinew_asan` and `--cfg sinew_tsan` (see
//! `ci/asan.sh` and `ci/tsan.sh`). Otherwise the functions for the two sanitizers are empty, and a
//! frame's tag is the caller's own word.
//!
//! Under a sanitizer the tag in a frame points to a [`Note`] on the suspended stack instead. The
//! note holds the caller's word and the sanitizer's data about that stack.
//!
//! Valgrind learns the bounds of each stack when the stack becomes usable, in every build. Outside
//! valgrind the request costs a few rotations of a register.

use crate::arch::Frame;

pub(crate) use notes::{Note, begin, come_back, leave, leave_for_good, prepare, retire, tag};

/// Functions without effect, for builds without a sanitizer.
#[cfg(not(any(sinew_asan, sinew_tsan)))]
mod notes {
    use super::Frame;

    /// Empty, because no sanitizer is active.
    #[derive(Debug)]
    pub(crate) struct Note;

    impl Note {
        pub(crate) const fn new() -> Note {
            Note
        }
    }

    /// Returns `tag` unchanged.
    ///
    /// # Safety
    /// As for the function of this name in the module for sanitizers.
    #[inline(always)]
    pub(crate) unsafe fn prepare(_: *mut Note, _: (*mut u8, *mut u8), tag: usize) -> usize {
        tag
    }

    /// Returns `word` unchanged.
    ///
    /// # Safety
    /// As for the function of this name in the module for sanitizers.
    #[inline(always)]
    pub(crate) unsafe fn tag(word: usize) -> usize {
        word
    }

    /// Returns `tag` unchanged.
    ///
    /// # Safety
    /// As for the function of this name in the module for sanitizers.
    #[inline(always)]
    pub(crate) unsafe fn leave(_: &mut Note, tag: usize, _target: usize) -> usize {
        tag
    }

    /// Does nothing.
    ///
    /// # Safety
    /// As for the function of this name in the module for sanitizers.
    #[inline(always)]
    pub(crate) unsafe fn come_back(_: &mut Note, _from: *mut Frame) {}

    /// Does nothing.
    ///
    /// # Safety
    /// As for the function of this name in the module for sanitizers.
    #[inline(always)]
    pub(crate) unsafe fn leave_for_good(_target: usize) {}

    /// Does nothing.
    ///
    /// # Safety
    /// As for the function of this name in the module for sanitizers.
    #[inline(always)]
    pub(crate) unsafe fn begin(_from: *mut Frame) {}

    /// Does nothing.
    ///
    /// # Safety
    /// As for the function of this name in the module for sanitizers.
    #[inline(always)]
    pub(crate) unsafe fn retire(_: *mut Note) {}
}

/// The announcements of switches.
#[cfg(any(sinew_asan, sinew_tsan))]
mod notes {
    use super::Frame;
    use core::ffi::c_void;
    use core::ptr;

    /// The sanitizers' data about one suspended context.
    #[derive(Debug)]
    pub(crate) struct Note {
        /// The caller's word.
        tag: usize,
        /// The bounds of the stack. `prepare` sets them for prepared contexts. For all others the
        /// context that runs next fills them in, because AddressSanitizer reports them only to that
        /// context.
        #[cfg(sinew_asan)]
        low: *const c_void,
        #[cfg(sinew_asan)]
        size: usize,
        /// Frames that AddressSanitizer keeps outside of the stack, while this context is
        /// suspended.
        #[cfg(sinew_asan)]
        fake_stack: *mut c_void,
        #[cfg(sinew_tsan)]
        fiber: *mut c_void,
    }

    impl Note {
        #[inline(always)]
        pub(crate) const fn new() -> Note {
            Note {
                tag: 0,
                #[cfg(sinew_asan)]
                low: ptr::null(),
                #[cfg(sinew_asan)]
                size: 0,
                #[cfg(sinew_asan)]
                fake_stack: ptr::null_mut(),
                #[cfg(sinew_tsan)]
                fiber: ptr::null_mut(),
            }
        }
    }

    #[cfg(sinew_asan)]
    unsafe extern "C" {
        fn __sanitizer_start_switch_fiber(save: *mut *mut c_void, low: *const c_void, size: usize);
        fn __sanitizer_finish_switch_fiber(
            saved: *mut c_void,
            low: *mut *const c_void,
            size: *mut usize,
        );
        fn __asan_unpoison_memory_region(low: *const c_void, size: usize);
    }

    #[cfg(sinew_tsan)]
    unsafe extern "C" {
        fn __tsan_get_current_fiber() -> *mut c_void;
        fn __tsan_create_fiber(flags: u32) -> *mut c_void;
        fn __tsan_destroy_fiber(fiber: *mut c_void);
        fn __tsan_switch_to_fiber(fiber: *mut c_void, flags: u32);
    }

    #[inline(always)]
    fn note_at(word: usize) -> *mut Note {
        ptr::with_exposed_provenance_mut(word)
    }

    /// Fills the note of a context that is being prepared. Returns the word for its frame.
    ///
    /// # Safety
    /// `note` is in the record of that context, which the caller owns. `bounds` are the ends of the
    /// context's stack.
    pub(crate) unsafe fn prepare(note: *mut Note, bounds: (*mut u8, *mut u8), tag: usize) -> usize {
        let _ = bounds;
        // SAFETY: the note is in the record, which the caller owns.
        unsafe {
            (*note).tag = tag;
            #[cfg(sinew_asan)]
            {
                (*note).low = bounds.0.cast();
                (*note).size = bounds.1.addr() - bounds.0.addr();
            }
            #[cfg(sinew_tsan)]
            {
                (*note).fiber = __tsan_create_fiber(0);
            }
        }
        note.expose_provenance()
    }

    /// Returns the caller's word from the word in a frame.
    ///
    /// # Safety
    /// `word` was read from the frame of a suspended context.
    pub(crate) unsafe fn tag(word: usize) -> usize {
        // SAFETY: the note lives as long as the context is suspended.
        unsafe { (*note_at(word)).tag }
    }

    /// Announces a switch that suspends the running context. Returns the word for its frame.
    ///
    /// # Safety
    /// `target` was read from the frame of the suspended context that the caller switches to next.
    /// `note` stays in place until the running context is resumed.
    #[inline(always)]
    pub(crate) unsafe fn leave(note: &mut Note, tag: usize, target: usize) -> usize {
        note.tag = tag;
        let word = (&raw mut *note).expose_provenance();
        // SAFETY: the target is suspended, so its note is alive.
        unsafe {
            let target = note_at(target);
            #[cfg(sinew_asan)]
            __sanitizer_start_switch_fiber(&raw mut note.fake_stack, (*target).low, (*target).size);
            #[cfg(sinew_tsan)]
            {
                note.fiber = __tsan_get_current_fiber();
                let fiber = (*target).fiber;
                // This must be the last call before the switch: later calls are counted for the
                // target.
                __tsan_switch_to_fiber(fiber, 0);
            }
        }
        word
    }

    /// Ends the announced switch, in the context that was resumed.
    ///
    /// # Safety
    /// A switch to this context has just returned. `note` was passed to `leave` before it, and
    /// `from` is the frame that control came from, or null.
    #[inline(always)]
    pub(crate) unsafe fn come_back(note: &mut Note, from: *mut Frame) {
        // SAFETY: a switch to this context has just happened, announced by the other side.
        #[cfg(sinew_asan)]
        unsafe {
            finish(note.fake_stack, from);
        }
        let _ = (note, from);
    }

    /// Announces that the running context ends.
    ///
    /// # Safety
    /// `target` was read from the frame of the suspended context that the caller exits to next.
    #[inline(always)]
    pub(crate) unsafe fn leave_for_good(target: usize) {
        // SAFETY: the target is suspended, so its note is alive.
        unsafe {
            let target = note_at(target);
            // Pass no place to save: AddressSanitizer then frees the frames that it kept elsewhere.
            #[cfg(sinew_asan)]
            __sanitizer_start_switch_fiber(ptr::null_mut(), (*target).low, (*target).size);
            #[cfg(sinew_tsan)]
            __tsan_switch_to_fiber((*target).fiber, 0);
        }
    }

    /// Ends the announced switch, in a context that runs for the first time.
    ///
    /// # Safety
    /// A switch has just started this context. `from` is the frame that control came from, or null.
    #[inline(always)]
    pub(crate) unsafe fn begin(from: *mut Frame) {
        // SAFETY: a switch to this context has just happened, announced by the other side.
        #[cfg(sinew_asan)]
        unsafe {
            finish(ptr::null_mut(), from);
        }
        let _ = from;
    }

    /// Forgets a context that has ended or never ran.
    ///
    /// # Safety
    /// `note` was passed to `prepare`, and nothing uses the context's stack.
    pub(crate) unsafe fn retire(note: *mut Note) {
        // SAFETY: the context is over and its stack is unused.
        unsafe {
            #[cfg(sinew_tsan)]
            __tsan_destroy_fiber((*note).fiber);
            #[cfg(sinew_asan)]
            __asan_unpoison_memory_region((*note).low, (*note).size);
        }
        let _ = note;
    }

    /// Ends the announced switch, and records the bounds of the stack that control came from.
    ///
    /// # Safety
    /// A switch has just ended on this stack. `saved` is the fake stack that `leave` saved for it,
    /// or null. `from` is a suspended frame or null.
    #[cfg(sinew_asan)]
    #[inline(always)]
    unsafe fn finish(saved: *mut c_void, from: *mut Frame) {
        let mut low = ptr::null();
        let mut size = 0;
        // SAFETY: `from`, if not null, is suspended, so its frame and note are alive.
        unsafe {
            __sanitizer_finish_switch_fiber(saved, &mut low, &mut size);
            if !from.is_null() {
                let note = note_at((*from).tag);
                (*note).low = low;
                (*note).size = size;
            }
        }
    }
}

/// Tells valgrind that `[low, high)` is a stack. Returns the id for [`deregister_stack`].
pub(crate) fn register_stack(low: *mut u8, high: *mut u8) -> usize {
    const STACK_REGISTER: usize = 0x1501;
    valgrind_request(STACK_REGISTER, low.addr(), high.addr())
}

/// Makes valgrind forget the stack that [`register_stack`] announced.
pub(crate) fn deregister_stack(id: usize) {
    const STACK_DEREGISTER: usize = 0x1502;
    valgrind_request(STACK_DEREGISTER, id, 0);
}

/// Makes valgrind's client request: rotations that cancel out, then an instruction without effect.
/// Valgrind recognises this sequence, and no compiler emits it.
#[inline(always)]
#[cfg_attr(
    not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")),
    allow(unused_variables, reason = "valgrind runs on few platforms")
)]
fn valgrind_request(request: usize, first: usize, second: usize) -> usize {
    let result: usize;
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux"))]
    {
        let arguments: [usize; 6] = [request, first, second, 0, 0, 0];
        // SAFETY: outside valgrind the sequence changes only the flags. Inside, valgrind reads the
        // six words and sets the result register.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!(
                "rol rdi, 3",
                "rol rdi, 13",
                "rol rdi, 61",
                "rol rdi, 51",
                "xchg rbx, rbx",
                inlateout("rdx") 0_usize => result,
                in("rax") &raw const arguments,
                // The rotations restore rdi.
                inlateout("rdi") 0_usize => _,
                options(nostack),
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!(
                "ror x12, x12, #3",
                "ror x12, x12, #13",
                "ror x12, x12, #51",
                "ror x12, x12, #61",
                "orr x10, x10, x10",
                inlateout("x3") 0_usize => result,
                in("x4") &raw const arguments,
                inlateout("x12") 0_usize => _,
                options(nostack),
            );
        }
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
    {
        result = 0;
    }
    result
}
