pub use sinew_context::context::{self, Arrival, Context, FirstFunction, Record};
use sinew_context::stack::{ProtectedFixedSize, Stack, StackAllocator};

/// The control block of a context. Its record comes first.
#[repr(C)]
pub struct Block {
    record: Record,
    stack: Stack,
}

impl Block {
    /// Prepares a context that begins with `entry`, under tag 5. Drop the block only if the context
    /// never ran, or has exited.
    pub fn prepare(entry: FirstFunction) -> (Box<Block>, Context) {
        let stack = ProtectedFixedSize::default().allocate().expect("no memory for a stack");
        let (top, low, high) = (stack.top(), stack.low(), stack.high());
        let mut block = Box::new(Block { record: Record::new(entry), stack });
        let bounds = (low.as_ptr(), high.as_ptr());
        // SAFETY: the block owns the stack and the record, and nothing else uses them.
        let context = unsafe { Context::prepare(top.as_ptr(), bounds, &raw mut block.record, 5) };
        (block, context)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the context never ran, or has exited.
        unsafe { context::retire(&raw mut self.record) };
    }
}

/// Answers a message with its double, and a switch without a message by a switch without one. The
/// message 0 makes it exit with the message 99.
pub unsafe extern "C-unwind" fn echo(first: *mut (), second: usize, _: *mut Record) -> ! {
    // SAFETY: the words come from the first switch. The sender of each switch is suspended.
    unsafe {
        let mut arrival = Arrival::begin(first, second);
        loop {
            let sender = arrival.from_suspended();
            arrival = match arrival.message() {
                None => context::switch(sender, 7),
                Some(0) => context::exit(sender, 99),
                Some(message) => context::switch_with(sender, 2 * message, 7),
            };
        }
    }
}
