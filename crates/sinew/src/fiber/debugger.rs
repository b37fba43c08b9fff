//! Offsets and sizes for a debugger that knows no types: `tools/gdb` reads them.

use super::control::Control;
use super::extra::Extra;
use super::slab;
use crate::primitive::AtomicPtr;
use core::mem::offset_of;

/// See the page of this module. Fields are only appended; any other change gets a new version.
#[repr(C)]
pub(crate) struct Table {
    version: usize,
    /// The newest chunk. `next_chunk` is the offset of the link to the chunk before it. A chunk is
    /// a head in the space of one block, followed by `blocks` blocks of `block` bytes.
    chunks: &'static AtomicPtr<slab::Chunk>,
    next_chunk: usize,
    block: usize,
    blocks: usize,
    /// Offsets in a block: its id, its life word, its wake word, the recorded wait and its address,
    /// its context, its carrier, its flags, and the pointer to its `Extra`.
    id: usize,
    life: usize,
    wake: usize,
    wait: usize,
    wait_address: usize,
    context: usize,
    carrier: usize,
    flags: usize,
    extra: usize,
    /// Offset of the name in `Extra`: an address and a length. The text begins `name_text` bytes
    /// after that address.
    name: usize,
    name_text: usize,
    /// Offsets in the frame at the context: the address to continue at, the frame pointer, and the
    /// other register. `frame` is the size of the frame.
    resume_at: usize,
    frame_pointer: usize,
    base_register: usize,
    frame: usize,
}

/// The table. A debugger finds it by this name.
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
        // An `Arc` has two counts before its content.
        name_text: 2 * size_of::<usize>(),
        resume_at: frame.resume_at,
        frame_pointer: frame.frame_pointer,
        base_register: frame.base_register,
        frame: frame.size,
    }
};
