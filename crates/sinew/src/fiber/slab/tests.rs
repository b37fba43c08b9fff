use super::*;
use crate::fiber::state::Outcome;

/// Enough blocks for ten chunks more than a slab keeps.
const MANY: usize = (FEW_CHUNKS + 10) * BLOCKS;

fn new_slab() -> &'static Slab {
    // SAFETY: the slab is leaked, so it is neither moved nor freed.
    Box::leak(Box::new(unsafe { Slab::new() }))
}

fn take_many(slab: &Slab) -> Vec<&'static Control> {
    (0..MANY).map(|_| slab.take().0).collect()
}

fn free_all(blocks: &[&'static Control]) {
    // SAFETY: only this test uses the blocks, and it only reads their atomics.
    blocks.iter().for_each(|block| unsafe { free(*block) });
}

fn resident_pages(block: &Control) -> usize {
    let chunk = head_of(block);
    let page = sinew_context::stack::page_size();
    let mut pages = vec![0_u8; CHUNK / page];
    // SAFETY: the chunk is mapped, and there is a byte for each of its pages.
    let said = unsafe { libc::mincore(chunk.cast_mut().cast(), CHUNK, pages.as_mut_ptr().cast()) };
    assert_eq!(said, 0);
    pages.iter().filter(|page| **page & 1 != 0).count()
}

#[test]
fn vacant_chunks_give_their_pages_back_and_epochs_go_on() {
    let slab = new_slab();
    let blocks = take_many(slab);
    let mut stale = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        for _ in 0..=index % 5 {
            stale.push((*block, block.wake.begin()));
            assert!(block.wake.claim(stale[stale.len() - 1].1, Outcome::Notified));
        }
    }
    free_all(&blocks);
    slab.trim();
    assert_eq!(slab.chunks.get(), 0);
    if cfg!(target_os = "linux") {
        assert_eq!(resident_pages(blocks[0]), 1);
    }
    // A stale wake does nothing, also while the pages are gone.
    assert!(stale.iter().all(|(block, epoch)| !block.wake.claim(*epoch, Outcome::Notified)));
    assert!(blocks.iter().all(|block| block.life.is_vacant() && block.wake.waiting().is_none()));
    // The slab hands out the same blocks, and no epoch comes twice.
    let again = take_many(slab);
    let mut before: Vec<_> = blocks.iter().map(|block| ptr::from_ref(*block).addr()).collect();
    let mut after: Vec<_> = again.iter().map(|block| ptr::from_ref(*block).addr()).collect();
    before.sort_unstable();
    after.sort_unstable();
    assert_eq!(before, after);
    again.iter().for_each(|block| _ = block.wake.begin());
    assert!(stale.iter().all(|(block, epoch)| !block.wake.claim(*epoch, Outcome::Notified)));
    let numbers = |block: &Control| block.wake.waiting().map(|epoch| epoch.number());
    let reused = |(block, epoch): &(&Control, crate::fiber::state::Epoch)| {
        numbers(block).is_none_or(|number| number <= epoch.number())
    };
    assert!(!stale.iter().any(reused));
}

#[test]
fn a_chunk_with_a_block_in_use_or_an_extra_stays() {
    let slab = new_slab();
    let blocks = take_many(slab);
    let (used, vacant) = blocks.split_first().unwrap();
    let with_extra = *vacant.iter().find(|block| head_of(**block) != head_of(*used)).unwrap();
    with_extra.extra_or_new();
    free_all(vacant);
    slab.trim();
    assert_eq!(slab.chunks.get(), 2);
    assert!(with_extra.extra().is_some());
    let again = take_many(slab);
    assert!(again.iter().all(|block| !ptr::eq(*block, *used)));
    assert!(again.iter().any(|block| ptr::eq(*block, with_extra)));
}
