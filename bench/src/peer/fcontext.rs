//! Boost.Context's assembly, through its C symbols: the core of `boost::context::fiber`.

#[cfg(has_fcontext)]
pub(crate) use linked::{create, switch};

pub(crate) const SETTINGS: &str = "Boost.Context of the system, 128 KiB stacks of malloc";

#[cfg(not(has_fcontext))]
pub(crate) const MISSING: &str = "not built: install libboost-context-dev";

#[cfg(has_fcontext)]
mod linked {
    use super::super::round_robin;
    use crate::measure::{Lap, Timed};
    use std::ffi::c_void;
    use std::hint::black_box;

    /// The size that `boost::context::fixedsize_stack` allocates.
    const STACK_SIZE: usize = 128 * 1024;

    #[repr(C)]
    struct Transfer {
        context: *mut c_void,
        data: *mut c_void,
    }

    unsafe extern "C" {
        fn jump_fcontext(to: *mut c_void, data: *mut c_void) -> Transfer;
        fn make_fcontext(
            top: *mut c_void,
            size: usize,
            entry: extern "C" fn(Transfer),
        ) -> *mut c_void;
    }

    fn stack_top() -> *mut c_void {
        // SAFETY: the end of the block lies one past it, in bounds of the allocation. The block is
        // never freed.
        unsafe {
            let low = libc::malloc(STACK_SIZE);
            assert!(!low.is_null());
            low.byte_add(STACK_SIZE)
        }
    }

    extern "C" fn bounce(mut from: Transfer) {
        loop {
            // SAFETY: the context that jumped here is suspended and waits for this one.
            from = unsafe { jump_fcontext(from.context, from.data) };
        }
    }

    pub(crate) fn switch(count: usize) -> Timed {
        // SAFETY: each context has a stack of its own.
        let make = |_| unsafe { make_fcontext(stack_top(), STACK_SIZE, bounce) };
        let contexts: Vec<*mut c_void> = (0..count).map(make).collect();
        round_robin(contexts, |context| {
            // SAFETY: each context is suspended, and jumps back at once.
            *context = unsafe { jump_fcontext(*context, std::ptr::null_mut()) }.context;
        })
    }

    extern "C" fn once(from: Transfer) {
        black_box(from.data);
        // SAFETY: the context that jumped here is suspended and waits for this one.
        unsafe { jump_fcontext(from.context, std::ptr::null_mut()) };
        unreachable!("no context jumps back");
    }

    pub(crate) fn create() -> Timed {
        let top = stack_top();
        Box::new(move |count| {
            Lap::run(count, || {
                for number in 0..count {
                    // SAFETY: nothing jumps to the previous context again, so its stack is free.
                    unsafe {
                        let context = make_fcontext(top, STACK_SIZE, once);
                        let data = std::ptr::without_provenance_mut(number as usize);
                        black_box(jump_fcontext(context, data).context);
                    }
                }
            })
        })
    }
}
