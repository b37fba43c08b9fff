//! Crowds of fibers that sleep and compute, and how much longer a contender needs for them than an
//! ideal scheduler of two processors.
//!
//! The ideal scheduler is played with the crowd's own times: it runs whichever fiber has been ready
//! longest on whichever processor is free, moves fibers at no cost, and loses no time between them.
//! A runtime whose fibers stay where they start cannot always reach it.

use crate::load::mix;
use crate::series::median;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// One turn of a fiber: it sleeps, or yields if the time is zero, and then computes.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) sleep: Duration,
    /// The steps of [`mix`].
    pub(crate) steps: u64,
}

/// The turns of each fiber.
pub(crate) type Crowd = Vec<Vec<Turn>>;

/// Lets a crowd run, and returns the time from the first spawn to the last end.
pub(crate) type Play = Box<dyn FnMut(Crowd) -> Duration>;

/// Returns how many steps of [`mix`] take a microsecond here, the best of some measurements.
fn steps_per_us() -> f64 {
    const STEPS: u64 = 1_000_000;
    let time = |_| {
        let start = Instant::now();
        black_box(mix(black_box(1), STEPS));
        start.elapsed().as_secs_f64() * 1e6
    };
    STEPS as f64 / (0..20).map(time).fold(f64::INFINITY, f64::min)
}

/// Crowds, by the speed of this machine.
pub(crate) struct Crowds {
    steps_per_us: f64,
}

impl Crowds {
    pub(crate) fn new() -> Crowds {
        Crowds { steps_per_us: steps_per_us() }
    }

    fn turn(&self, sleep_us: u64, compute_us: u64) -> Turn {
        let steps = (compute_us as f64 * self.steps_per_us) as u64;
        Turn { sleep: Duration::from_micros(sleep_us), steps }
    }

    /// 16 fibers that sleep 20 ms and then compute 50 ms.
    pub(crate) fn sleepers(&self) -> Crowd {
        vec![vec![self.turn(20_000, 50_000)]; 16]
    }

    /// 10 fibers that compute ten times 5 ms, and yield in between.
    pub(crate) fn turns(&self) -> Crowd {
        vec![vec![self.turn(0, 5_000); 10]; 10]
    }

    /// 3 to 100 fibers, each with 2 to 7 turns. Sleeps and computations take 0.1 to 5 ms: a tenth
    /// of what a server's requests might take, so that many crowds fit into a measurement.
    pub(crate) fn mixed(&self, seed: u64) -> Crowd {
        let mut state = mix(2 * seed + 1, 8);
        let mut below = |end: u64| {
            state = mix(state, 1);
            (state >> 33) % end
        };
        let count = 3 + below(98);
        let mut fiber = || {
            let turns = 2 + below(6);
            (0..turns).map(|_| self.turn(100 + below(4_901), 100 + below(4_901))).collect()
        };
        (0..count).map(|_| fiber()).collect()
    }

    /// Returns the time that an ideal scheduler of two processors needs.
    pub(crate) fn ideal(&self, crowd: &Crowd) -> Duration {
        // Fibers by the time at which they are ready for a turn.
        let ready = |at: u64, fiber: usize, turn: usize| Reverse((at, fiber, turn));
        let nanos = |turn: Turn| (turn.steps as f64 / self.steps_per_us * 1e3) as u64;
        let sleep = |turn: Turn| turn.sleep.as_nanos() as u64;
        let begun = crowd.iter().enumerate();
        let mut queue: BinaryHeap<_> =
            begun.map(|(fiber, turns)| ready(sleep(turns[0]), fiber, 0)).collect();
        let mut free = [0_u64; 2];
        let mut end = 0;
        while let Some(Reverse((at, fiber, turn))) = queue.pop() {
            let processor = usize::from(free[1] < free[0]);
            let done = free[processor].max(at) + nanos(crowd[fiber][turn]);
            free[processor] = done;
            end = end.max(done);
            if let Some(next) = crowd[fiber].get(turn + 1) {
                queue.push(ready(done + sleep(*next), fiber, turn + 1));
            }
        }
        Duration::from_nanos(end)
    }

    /// Returns how many times the ideal time `play` takes.
    fn ratio(&self, crowd: Crowd, play: &mut Play) -> f64 {
        let ideal = self.ideal(&crowd);
        play(crowd).as_secs_f64() / ideal.as_secs_f64()
    }
}

/// What a benchmark of this module lets its contenders do.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Sleepers,
    Turns,
    Mixed,
}

/// The number of crowds of a measurement of [`Kind::Mixed`]. Nine repeats have 207 of them.
const MIXES: u64 = 23;

/// Returns a measurement: the ratio to the ideal time; of mixed crowds, the ratio that one in twenty
/// exceeds, and their median. Each repeat has mixed crowds of its own, and all contenders of a repeat
/// play these crowds.
pub(crate) fn figures(
    kind: Kind,
    make: impl Fn() -> Play + 'static,
) -> impl FnMut(Duration) -> Result<Vec<f64>, String> {
    let mut made = None;
    let mut repeat = 0;
    move |_| {
        let (crowds, play) = made.get_or_insert_with(|| (Crowds::new(), make()));
        repeat += 1;
        Ok(match kind {
            Kind::Sleepers => vec![crowds.ratio(crowds.sleepers(), play)],
            Kind::Turns => vec![crowds.ratio(crowds.turns(), play)],
            Kind::Mixed => {
                let seeds = (repeat - 1) * MIXES..repeat * MIXES;
                let mut all: Vec<f64> =
                    seeds.map(|seed| crowds.ratio(crowds.mixed(seed), play)).collect();
                all.sort_unstable_by(f64::total_cmp);
                vec![all[all.len() * 95 / 100], median(all)]
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ideal_time_fills_both_processors() {
        let crowds = Crowds { steps_per_us: 1_000.0 };
        assert_eq!(crowds.ideal(&crowds.sleepers()), Duration::from_millis(20 + 8 * 50));
        assert_eq!(crowds.ideal(&crowds.turns()), Duration::from_millis(5 * 50));
        // Two fibers alternate on one processor each; a third fits between their sleeps.
        let turn = crowds.turn(10_000, 10_000);
        assert_eq!(crowds.ideal(&vec![vec![turn; 2]; 2]), Duration::from_millis(40));
        assert_eq!(crowds.ideal(&vec![vec![turn; 2]; 3]), Duration::from_millis(50));
    }

    #[test]
    fn a_seed_gives_one_crowd() {
        let crowds = Crowds { steps_per_us: 700.0 };
        for seed in 0..50 {
            let crowd = crowds.mixed(seed);
            assert!((3..=100).contains(&crowd.len()));
            assert_eq!(crowds.ideal(&crowd), crowds.ideal(&crowds.mixed(seed)));
        }
    }
}
