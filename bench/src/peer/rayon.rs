//! rayon: a pool of threads that divide work in halves and steal them from each other.

use crate::load::{LEAF_STEPS, TREE_DEPTH, mix};
use crate::measure::{Lap, Timed};
use std::hint::black_box;

pub(crate) const SETTINGS: &str = "1.12.0, rayon::join, 2 threads";

fn tree(depth: u32, index: u64) -> u64 {
    if depth == 0 {
        return mix(index, LEAF_STEPS);
    }
    let (left, right) =
        rayon::join(|| tree(depth - 1, 2 * index), || tree(depth - 1, 2 * index + 1));
    left.wrapping_add(right)
}

pub(crate) fn fork_join() -> Timed {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("there are threads");
    Box::new(move |count| {
        pool.install(|| {
            Lap::run(count, || {
                for _ in 0..count {
                    black_box(tree(black_box(TREE_DEPTH), 0));
                }
            })
        })
    })
}
