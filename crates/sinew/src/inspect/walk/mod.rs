//! Lists the functions on a stack, from a copy of the stack.

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
    // SAFETY: the unwinder looks the address up in its tables, and does not read the memory there.
    let function = |address: usize| unsafe {
        _Unwind_FindEnclosingFunction(core::ptr::without_provenance(address))
    };
    function(first) == function(second)
}

/// A copy of a stack, from the place where its context is suspended.
pub(super) struct StackCopy {
    /// The address of the first byte.
    pub(super) base: usize,
    pub(super) bytes: Vec<u8>,
}

impl StackCopy {
    /// Reads the word at an address.
    fn word(&self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.base)?;
        let bytes = self.bytes.get(offset..offset.checked_add(size_of::<usize>())?)?;
        Some(usize::from_ne_bytes(bytes.try_into().expect("the slice has the size of a word")))
    }

    /// Returns the addresses of the frames of a suspended context, the innermost first, `limit` at
    /// most. Returns `None` if sinew cannot walk stacks on this platform.
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

    /// Returns the addresses of the frames of a thread that was stopped at any instruction.
    pub(super) fn frames_from(&self, stopped: Stopped, limit: usize) -> Vec<usize> {
        let Stopped { instruction, stack, frame, link } = stopped;
        unwind::walk(unwind::Start { instruction, stack, frame, link }, self, limit)
    }
}
