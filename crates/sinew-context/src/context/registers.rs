//! The registers of a suspended context, and where its frame keeps them: for debuggers and for stack
//! walkers.
//!
//! Next: `arch`, which lays out the frame.

use crate::arch::{FRAME_SIZE, Frame};

/// The registers of a suspended context, from which a debugger or a stack walker starts.
///
/// # Examples
/// ```
/// use sinew_context::FiberContext;
///
/// let fiber = FiberContext::new(|caller| caller.resume().unwrap())?;
/// let fiber = fiber.resume().unwrap();
/// let registers = fiber.registers();
/// let range = fiber.stack_range().unwrap();
/// assert!(range.contains(&registers.stack));
/// assert!(!range.contains(&registers.instruction));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Registers {
    /// The address of the next instruction. It is not a return address.
    pub instruction: usize,
    /// The stack pointer at that address.
    pub stack: usize,
    /// The frame pointer (rbp, x29, s0) at that address.
    pub frame: usize,
    /// The other register that the switch saves (rbx, x19, s1).
    pub base: usize,
}

/// Offsets of the saved registers in the frame of a suspended context, for debuggers.
///
/// # Examples
/// ```
/// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
/// use sinew_context::context::FRAME_LAYOUT;
///
/// let (_block, context) = Block::prepare(echo);
/// let frame = context.as_ptr().as_ptr().cast::<u8>();
/// // SAFETY: the context is suspended, so its frame stays as it is.
/// unsafe {
///     let resume_at = frame.add(FRAME_LAYOUT.resume_at).cast::<usize>().read();
///     assert_eq!(resume_at, context.registers().instruction);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FrameLayout {
    /// See [`Registers::instruction`].
    pub resume_at: usize,
    /// See [`Registers::frame`].
    pub frame_pointer: usize,
    /// See [`Registers::base`].
    pub base_register: usize,
    /// The size of the frame. The stack pointer after the switch is the frame's address plus this.
    pub size: usize,
}

/// The frame layout of this machine.
///
/// # Examples
/// ```
/// use sinew_context::context::FRAME_LAYOUT;
///
/// assert!(FRAME_LAYOUT.resume_at < FRAME_LAYOUT.size);
/// ```
pub const FRAME_LAYOUT: FrameLayout = FrameLayout {
    resume_at: core::mem::offset_of!(Frame, resume_at),
    frame_pointer: core::mem::offset_of!(Frame, frame_pointer),
    base_register: core::mem::offset_of!(Frame, base_register),
    size: FRAME_SIZE,
};

impl Registers {
    /// Reads the registers of a context that is suspended at `address` from a copy of its stack.
    /// `read` returns the word at an address, or `None` if the copy does not hold it.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::context::{FRAME_LAYOUT, Registers};
    ///
    /// // A copy of the 128 bytes from address 0x7000 on, with a frame at the beginning.
    /// let mut copy = [0; 16];
    /// copy[FRAME_LAYOUT.resume_at / 8] = 0x40_1000;
    /// let read = |address: usize| copy.get((address - 0x7000) / 8).copied();
    /// let registers = Registers::read_from(0x7000, read).unwrap();
    /// assert_eq!(registers.instruction, 0x40_1000);
    /// assert_eq!(registers.stack, 0x7000 + FRAME_LAYOUT.size);
    /// assert_eq!(Registers::read_from(0x7078, read), None); // the copy ends inside the frame
    /// ```
    pub fn read_from(address: usize, read: impl Fn(usize) -> Option<usize>) -> Option<Registers> {
        let word = |offset: usize| read(address.checked_add(offset)?);
        Some(Registers {
            instruction: word(core::mem::offset_of!(Frame, resume_at))?,
            stack: address.checked_add(FRAME_SIZE)?,
            frame: word(core::mem::offset_of!(Frame, frame_pointer))?,
            base: word(core::mem::offset_of!(Frame, base_register))?,
        })
    }
}
