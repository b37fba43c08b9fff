//! Functions that fill or overflow the current stack.

/// Uses at least `bytes` of the current stack, page by page, and at most a few KiB more.
#[inline(never)]
pub fn burn(bytes: usize) {
    let start = 0_u8;
    descend((&raw const start).addr(), bytes);
}

#[inline(never)]
fn descend(start: usize, bytes: usize) {
    let frame = std::hint::black_box([1_u8; 512]);
    if start - (&raw const frame).addr() < bytes {
        descend(start, bytes);
    }
    std::hint::black_box(&frame);
}

/// Recurses until the stack overflows.
#[inline(never)]
pub fn overflow() -> usize {
    let frame = std::hint::black_box([1_u8; 512]);
    let deeper = if std::hint::black_box(true) { overflow() } else { 0 };
    deeper + usize::from(frame[std::hint::black_box(7)])
}
