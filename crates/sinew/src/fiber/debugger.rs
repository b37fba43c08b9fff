//! Where things are, for a debugger that knows nothing of types: `tools/gdb` reads it.

use super::control::Control;
use super::extra::Extra;
use super::slab;
use crate::primitive::AtomicPtr;
use core::mem::offset_of;

/// See the page of this module. Only ever appended to; what has changed otherwise has another version.
#[repr(C)]
pub(crate) struct Table {
    version: usize,
    /// The newest chunk: its second word leads to the next one. Blocks follow the first, of the size of
    /// one.
    chunks: &'static AtomicPtr<slab::Chunk>,
    next_chunk: usize,
    block: usize,
    blocks: usize,
    /// Where in a block: its number, its life, its wait, what it waits for and where, its place on its
    /// stack, its carrier, its flags, and what few fibers have.
    id: usize,
    life: usize,
    wake: usize,
    wait: usize,
    wait_address: usize,
    context: usize,
    carrier: usize,
    flags: usize,
    extra: usize,
    /// Where in that its name is: an address of the text and a length; and how far behind that address the
    /// text is.
    name: usize,
    name_text: usize,
    /// Where in the frame at that place: where it goes on, the frame pointer, and the other register. And
    /// how large it is.
    resume_at: usize,
    frame_pointer: usize,
    base_register: usize,
    frame: usize,
}

/// The table. Its name is what a debugger looks for.
#[used]
pub(crate) static SINEW_FIBERS: Table = {
    let frame = sinew_context::context::FRAME_LAYOUT;
    Table {
        version: 1,
        chunks: &slab::CHUNKS,
        next_chunk: offset_of!(slab::Chunk, next),
        block: size_of::<Control>(),
        blocks: slab::BLOCKS,
        id: offset_of!(Control, id),
        life: offset_of!(Control, life),
        wake: offset_of!(Control, wake),
        wait: offset_of!(Control, wait),
        wait_address: offset_of!(Control, wait_address),
        context: offset_of!(Control, context),
        carrier: offset_of!(Control, carrier),
        flags: offset_of!(Control, flags),
        extra: offset_of!(Control, extra),
        name: offset_of!(Extra, name),
        // Two counts come before what an `Arc` holds.
        name_text: 2 * size_of::<usize>(),
        resume_at: frame.resume_at,
        frame_pointer: frame.frame_pointer,
        base_register: frame.base_register,
        frame: frame.size,
    }
};
