//! What may go wrong with any call, made to happen often: with `--cfg sinew_faults`, for tests.
//!
//! Calls are interrupted; they would block at one moment and not at the next; they get or give fewer
//! bytes than they could. None of that may lose or repeat a byte.

#[cfg(not(sinew_faults))]
pub(crate) use none::{blocks, interrupts, shorten, shorten_mut};
#[cfg(sinew_faults)]
pub(crate) use some::{blocks, interrupts, shorten, shorten_mut};

#[cfg(not(sinew_faults))]
mod none {
    /// Whether a call is to be interrupted.
    #[inline(always)]
    pub(crate) fn interrupts() -> bool {
        false
    }

    /// Whether a call is to block, with an event that follows at once.
    #[inline(always)]
    pub(crate) fn blocks() -> bool {
        false
    }

    /// What a call is to write of a buffer.
    #[inline(always)]
    pub(crate) fn shorten(buffer: &[u8]) -> &[u8] {
        buffer
    }

    /// What a call is to read into a buffer.
    #[inline(always)]
    pub(crate) fn shorten_mut(buffer: &mut [u8]) -> &mut [u8] {
        buffer
    }
}

#[cfg(sinew_faults)]
mod some {
    use crate::primitive::{AtomicU64, Ordering};

    /// The next of some random numbers (splitmix).
    fn random() -> u64 {
        static STATE: AtomicU64 = AtomicU64::new(0);
        let mut x = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(crate) fn interrupts() -> bool {
        random().is_multiple_of(5)
    }

    pub(crate) fn blocks() -> bool {
        random().is_multiple_of(5)
    }

    fn length(len: usize) -> usize {
        if len > 1 && random().is_multiple_of(3) { 1 + random() as usize % (len - 1) } else { len }
    }

    pub(crate) fn shorten(buffer: &[u8]) -> &[u8] {
        &buffer[..length(buffer.len())]
    }

    pub(crate) fn shorten_mut(buffer: &mut [u8]) -> &mut [u8] {
        let len = length(buffer.len());
        &mut buffer[..len]
    }
}
