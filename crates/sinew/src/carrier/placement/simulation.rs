//! The rule of placement, played on 2 to 64 carriers.
//!
//! Times are in nanoseconds. A carrier acts, and its next act comes when this one is over. The
//! simulation has what the rule depends on: a wake takes long, a start is short, burdens are read at
//! one moment. It has no queues of the kernel and no races within an act.

use super::{FEW, LOOKS, next_limit, share};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// From a wake until the carrier acts.
const WAKE: u64 = 50_000;
/// From the start of a fiber until it waits.
const START: u64 = 1_000;
/// The time to give or take one fiber.
const MOVE: u64 = 50;
/// The time of a search that finds nothing, before a carrier sleeps.
const SEARCH: u64 = 10_000;

#[derive(Clone, Default)]
struct Carrier {
    live: usize,
    deque: usize,
    offers: usize,
    limit: u32,
    asleep: bool,
    /// When a search for work ends.
    search_until: Option<u64>,
    /// How many fibers have begun here.
    started: usize,
}

impl Carrier {
    fn burden(&self) -> usize {
        self.live + self.deque + self.offers
    }
}

/// What fibers do when they have started.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// They wait, and are live from then on.
    Stay,
    /// They end without waiting, after a time.
    End(u64),
}

struct Crew {
    carriers: Vec<Carrier>,
    acts: BinaryHeap<Reverse<(u64, usize)>>,
    kind: Kind,
    random: u64,
    offered: usize,
    wakes: usize,
}

impl Crew {
    /// A crew that sleeps, but for carrier 0, which has just made `fibers` fibers.
    fn new(count: usize, fibers: usize, kind: Kind, seed: u64) -> Crew {
        let sleeper = Carrier { asleep: true, limit: next_limit(0), ..Carrier::default() };
        let mut carriers = vec![sleeper; count];
        carriers[0].asleep = false;
        carriers[0].deque = fibers;
        let acts = BinaryHeap::from([Reverse((0, 0))]);
        let mut crew = Crew { carriers, acts, kind, random: seed, offered: 0, wakes: 0 };
        if fibers > 1 {
            crew.wake_one(0);
        }
        crew
    }

    fn below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % end
    }

    fn wake(&mut self, who: usize, now: u64) {
        self.carriers[who].asleep = false;
        self.wakes += 1;
        self.acts.push(Reverse((now + WAKE, who)));
    }

    fn wake_one(&mut self, now: u64) {
        if let Some(sleeper) = self.carriers.iter().position(|carrier| carrier.asleep) {
            self.wake(sleeper, now);
        }
    }

    /// Rule 2 of the page. Returns how many fibers the carrier gives away.
    fn deal(&mut self, me: usize, now: u64) -> usize {
        let count = self.carriers.len();
        let looks = if count <= FEW { count } else { LOOKS };
        let first = self.below(count);
        let compared: Vec<usize> = (0..looks)
            .map(|look| if count <= FEW { (first + look) % count } else { self.below(count) })
            .filter(|one| *one != me)
            .collect();
        self.carriers[me].limit = next_limit(self.carriers[me].live as u32);
        let theirs: usize = compared.iter().map(|one| self.carriers[*one].burden()).sum();
        let mean = (theirs + self.carriers[me].burden()).div_ceil(compared.len() + 1);
        let mut all = 0;
        for target in compared {
            let (mine, other) = (&self.carriers[me], &self.carriers[target]);
            let given = share(mine.burden(), other.burden(), mean, other.asleep).min(mine.deque);
            if given == 0 {
                continue;
            }
            self.carriers[me].deque -= given;
            self.carriers[target].offers += given;
            if self.carriers[target].asleep {
                self.wake(target, now);
            }
            all += given;
        }
        self.offered += all;
        all
    }

    /// Performs one act, and returns how long it takes; `None` if the carrier falls asleep.
    fn act(&mut self, me: usize, now: u64) -> Option<u64> {
        if self.carriers[me].offers > 0 {
            let taken = std::mem::take(&mut self.carriers[me].offers);
            self.carriers[me].deque += taken;
            self.carriers[me].search_until = None;
            if taken > 1 {
                self.wake_one(now);
            }
            return Some(taken as u64 * MOVE);
        }
        if self.carriers[me].deque > 0 {
            let carrier = &self.carriers[me];
            let given = if carrier.live as u32 >= carrier.limit { self.deal(me, now) } else { 0 };
            let carrier = &mut self.carriers[me];
            carrier.search_until = None;
            if carrier.deque == 0 {
                return Some(given as u64 * MOVE);
            }
            carrier.deque -= 1;
            carrier.started += 1;
            let busy = match self.kind {
                Kind::Stay => {
                    carrier.live += 1;
                    START
                }
                Kind::End(time) => time,
            };
            return Some(given as u64 * MOVE + busy);
        }
        // Rule 4 of the page, without its patience: fibers here never compute for long.
        let mine = self.carriers[me].burden();
        let richer = |one: &Carrier| one.deque > 1 && one.burden() > mine + 1;
        if let Some(victim) = self.carriers.iter().position(richer) {
            let more = self.carriers[victim].burden() - mine;
            let taken = self.carriers[victim].deque.div_ceil(2).min(32).min(more.div_ceil(2));
            self.carriers[victim].deque -= taken;
            self.carriers[me].deque += taken;
            self.carriers[me].search_until = None;
            self.wake_one(now);
            return Some(taken as u64 * MOVE);
        }
        let until = *self.carriers[me].search_until.get_or_insert(now + SEARCH);
        if now >= until {
            self.carriers[me].asleep = true;
            self.carriers[me].search_until = None;
            return None;
        }
        Some(500)
    }

    /// Lets the crew work until all its carriers sleep. Returns the time.
    fn run(&mut self) -> u64 {
        let mut end = 0;
        while let Some(Reverse((now, who))) = self.acts.pop() {
            end = now;
            if let Some(time) = self.act(who, now) {
                self.acts.push(Reverse((now + time.max(1), who)));
            }
        }
        assert!(self.carriers.iter().all(|one| one.deque + one.offers == 0), "a fiber was left");
        end
    }
}

const CREWS: [usize; 6] = [2, 4, 8, 16, 32, 64];

/// Returns how many more fibers the fullest carrier gets than the mean: the median of 40 crews, and
/// the greatest.
fn unevenness(count: usize, each: usize) -> (f64, f64) {
    let most = |seed| {
        let mut crew = Crew::new(count, count * each, Kind::Stay, seed);
        crew.run();
        assert_eq!(crew.carriers.iter().map(|carrier| carrier.live).sum::<usize>(), count * each);
        crew.carriers.iter().map(|carrier| carrier.live).max().unwrap()
    };
    let mut all: Vec<_> = (0..40).map(most).collect();
    all.sort_unstable();
    let ratio = |most: usize| most as f64 / each as f64;
    (ratio(all[20]), ratio(all[39]))
}

#[test]
fn fibers_that_stay_are_shared_out() {
    for count in CREWS {
        for each in [2, 4, 16, 64, 256] {
            let (median, greatest) = unevenness(count, each);
            println!(
                "{count:2} carriers, {each:3} fibers each: {median:.2}, at most {greatest:.2}"
            );
            let bound = match (count <= FEW, each >= 16) {
                (true, _) => 1.0,
                (false, true) => 1.5,
                (false, false) => 2.5,
            };
            assert!(greatest <= bound, "more than {bound}");
        }
    }
}

#[test]
fn fibers_that_end_at_once_are_not_offered() {
    for count in CREWS {
        let mut crew = Crew::new(count, 10_000, Kind::End(100), 1);
        crew.run();
        assert_eq!(crew.offered, 0);
    }
}
