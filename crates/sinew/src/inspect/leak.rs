//! Finds leaked fibers: fibers that wait at channels and semaphores to which nothing else has a
//! pointer.
//!
//! [`reach`](super::reach) finds fibers that cannot be woken, and says when it may be wrong.

use super::reach;
use super::snapshot::{FiberInfo, fibers};
use crate::fiber::WaitKind;
use std::collections::HashSet;
use std::io;

/// Returns the fibers that wait forever at a channel (bounded, unbounded or oneshot), to send or to
/// receive, or for permits of a semaphore.
///
/// Nothing can wake such a fiber: only the fiber itself, and other fibers of this kind, have a
/// pointer to the channel or semaphore. It waits forever, unless it is cancelled.
///
/// The call searches all memory of the process for pointers, twice. A search makes up to eight
/// passes over memory. The first pass looks for pointers to the channels and semaphores. If such a
/// pointer is in a block of the heap, the next pass looks for pointers to that block, and so on. A
/// pass takes about a second for each gigabyte of resident memory. With the allocator of glibc, a
/// pointer in a block counts only if something has a pointer to that block. With other allocators,
/// every pointer in the heap counts, and no fiber that waits at a semaphore in the heap is found.
///
/// A stale pointer that is still somewhere in memory keeps a fiber from being listed. So does a
/// pointer to another object in the block of the channel or semaphore. The search does not see a
/// pointer that a thread has in a register only, or that is hidden (with marks in its upper bits,
/// in another process, in a file). Then it lists a fiber that may still be woken. A fiber that
/// waits for several things at once (`select!`), or at a broadcast or watch channel, is not listed.
///
/// # Errors
/// Fails if the memory of the process cannot be read: there is no `/proc`, the system is not Linux,
/// or a sanitizer is in use.
///
/// # Examples
/// ```
/// use sinew::sync::channel;
///
/// let forgetful = sinew::spawn(|| {
///     let (sender, receiver) = channel::bounded::<u8>(1);
///     let _ = receiver.recv(); // its own sender is the only one
///     drop(sender);
/// });
/// sinew::wait_until(|| forgetful.fiber().waits_for().is_some());
/// for leaked in sinew::inspect::leaks()? {
///     println!("{} waits for ever", leaked.id());
/// }
/// forgetful.cancel();
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline(never)]
pub fn leaks() -> io::Result<Vec<FiberInfo>> {
    // The stack below this variable belongs to the search.
    let top = 0_u8;
    let top = (&raw const top).addr();
    // Keep only ids and counts: the address of a channel must not be in memory while memory is
    // searched for it.
    let first: HashSet<_> = search(top)?.iter().map(|info| (info.id(), info.waits)).collect();
    if first.is_empty() {
        return Ok(Vec::new());
    }
    // The first search may have missed a pointer that one thread handed to another meanwhile.
    let mut found = search(top)?;
    found.retain(|info| first.contains(&(info.id(), info.waits)));
    Ok(found)
}

/// Whether a fiber waits at a channel or a semaphore, so that it might be listed.
pub(super) fn is_suspect(info: &FiberInfo) -> bool {
    let kind = info.wait.map(|wait| wait.kind);
    matches!(kind, Some(WaitKind::Send | WaitKind::Receive | WaitKind::Semaphore))
}

fn search(top: usize) -> io::Result<Vec<FiberInfo>> {
    let fibers = fibers();
    if !fibers.iter().any(is_suspect) {
        return Ok(Vec::new());
    }
    let mut stuck = reach::stuck(fibers, top)?;
    super::memory::settle();
    if !stuck.iter().all(FiberInfo::is_still_so) {
        // One of the stuck fibers has gone on after all, and may have woken others.
        stuck.clear();
    }
    stuck.retain(is_suspect);
    Ok(stuck)
}
