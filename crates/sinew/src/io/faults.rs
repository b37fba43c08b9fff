//! Faults that any system call may have, made frequent for tests: in a build with `--cfg
//! sinew_faults`, if the environment variable `SINEW_FAULTS` is set.
//!
//! Calls are interrupted. Calls would block at one moment and not at the next. Calls move fewer
//! bytes than they could. None of these faults may lose or repeat a byte.

#[cfg(not(sinew_faults))]
pub(crate) use none::{blocks, interrupts, shorten, shorten_mut};
#[cfg(sinew_faults)]
pub(crate) use some::{blocks, interrupts, shorten, shorten_mut};

#[cfg(not(sinew_faults))]
mod none {
    /// Whether the next call is to fail as interrupted.
    #[inline(always)]
    pub(crate) fn interrupts() -> bool {
        false
    }

    /// Whether the next call is to fail with `WouldBlock`, followed at once by an event.
    #[inline(always)]
    pub(crate) fn blocks() -> bool {
        false
    }

    /// The part of `buffer` that the next call is to write.
    #[inline(always)]
    pub(crate) fn shorten(buffer: &[u8]) -> &[u8] {
        buffer
    }

    /// The part of `buffer` that the next call is to read into.
    #[inline(always)]
    pub(crate) fn shorten_mut(buffer: &mut [u8]) -> &mut [u8] {
        buffer
    }
}

#[cfg(sinew_faults)]
mod some {
    use crate::primitive::{AtomicU64, Ordering};
    use std::sync::LazyLock;

    static ON: LazyLock<bool> = LazyLock::new(|| std::env::var_os("SINEW_FAULTS").is_some());

    /// The next number of a pseudo-random sequence (splitmix).
    fn random() -> u64 {
        static STATE: AtomicU64 = AtomicU64::new(0);
        let mut x = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Whether a fault happens, as it does once in `times` calls.
    fn happens(times: u64) -> bool {
        *ON && random().is_multiple_of(times)
    }

    pub(crate) fn interrupts() -> bool {
        happens(5)
    }

    pub(crate) fn blocks() -> bool {
        happens(5)
    }

    fn length(len: usize) -> usize {
        if len > 1 && happens(3) { 1 + random() as usize % (len - 1) } else { len }
    }

    pub(crate) fn shorten(buffer: &[u8]) -> &[u8] {
        &buffer[..length(buffer.len())]
    }

    pub(crate) fn shorten_mut(buffer: &mut [u8]) -> &mut [u8] {
        let len = length(buffer.len());
        &mut buffer[..len]
    }
}
