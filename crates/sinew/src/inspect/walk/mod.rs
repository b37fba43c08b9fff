//! The functions on a stack, from a copy of it.

mod symbols;
mod unwind;

pub(super) use symbols::at as symbols;

use super::stop::Stopped;
use sinew_context::context::Registers;

/// Whether two addresses are in the code of one function.
pub(super) fn is_same_function(first: usize, second: usize) -> bool {
    unsafe extern "C" {
        fn _Unwind_FindEnclosingFunction(address: *const ()) -> *const ();
    }
    // SAFETY: the unwinder looks the address up in its tables, and does not read what is there.
    let function = |address: usize| unsafe {
        _Unwind_FindEnclosingFunction(core::ptr::without_provenance(address))
    };
    function(first) == function(second)
}

/// A copy of a stack from where its context is suspended.
pub(super) struct StackCopy {
    /// Where the first byte was.
    pub(super) base: usize,
    pub(super) bytes: Vec<u8>,
}

impl StackCopy {
    /// The word at an address.
    fn word(&self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.base)?;
        let bytes = self.bytes.get(offset..offset.checked_add(size_of::<usize>())?)?;
        Some(usize::from_ne_bytes(bytes.try_into().expect("as many as a word has")))
    }

    /// The addresses of its frames, the innermost first, `limit` at most; nothing if stacks cannot be
    /// walked here.
    pub(super) fn frames(&self, limit: usize) -> Option<Vec<usize>> {
        let registers = Registers::read_from(self.base, |address| self.word(address))?;
        let start = unwind::Start {
            instruction: registers.instruction,
            stack: registers.stack,
            frame: registers.frame,
            link: 0,
        };
        Some(unwind::walk(start, self, limit))
    }

    /// The same of one that was stopped anywhere.
    pub(super) fn frames_from(&self, stopped: Stopped, limit: usize) -> Vec<usize> {
        let Stopped { instruction, stack, frame, link } = stopped;
        unwind::walk(unwind::Start { instruction, stack, frame, link }, self, limit)
    }
}
