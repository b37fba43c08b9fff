//! The order in which contenders run, which differs from repeat to repeat.
//!
//! A contender that always came first would find the caches and the clock of the processor as the
//! harness left them. A contender that always came after a greedy one would pay for it. So the
//! contenders change places and neighbours: in as many repeats as there are contenders, each comes
//! once in each place. If their number is even, each contender also comes once right after every
//! other. If it is odd, the cycle takes twice as many repeats, and each follows every other twice.

/// Returns the contenders, by index, in the order of one repeat.
///
/// The first order alternates between both ends (0, 1, 4, 2, 3 for five). Each further repeat adds
/// one to every index, modulo the number of contenders. An odd number of contenders needs the
/// reverse of these orders as well.
pub(crate) fn order(contenders: usize, repeat: usize) -> Vec<usize> {
    let place = |place: usize| match place % 2 {
        1 => place.div_ceil(2),
        _ => contenders - place / 2,
    };
    let mut order: Vec<usize> =
        (0..contenders).map(|at| (place(at) + repeat) % contenders).collect();
    if contenders % 2 == 1 && repeat / contenders % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contender_comes_once_in_each_place() {
        for contenders in 1..10 {
            for place in 0..contenders {
                let mut there: Vec<usize> =
                    (0..contenders).map(|repeat| order(contenders, repeat)[place]).collect();
                there.sort_unstable();
                assert!(there.into_iter().eq(0..contenders), "place {place} of {contenders}");
            }
        }
    }

    #[test]
    fn each_contender_follows_each_other_one_equally_often() {
        for contenders in 2..10 {
            let cycle = if contenders % 2 == 0 { contenders } else { 2 * contenders };
            let mut follows = vec![vec![0; contenders]; contenders];
            for repeat in 0..cycle {
                for pair in order(contenders, repeat).windows(2) {
                    follows[pair[0]][pair[1]] += 1;
                }
            }
            for (before, counts) in follows.into_iter().enumerate() {
                for (after, count) in counts.into_iter().enumerate() {
                    let expected = if before == after { 0 } else { cycle / contenders };
                    assert_eq!(count, expected, "{after} after {before} of {contenders}");
                }
            }
        }
    }
}
