//! Networks of fibers that compute a result.

use crate::team::{Member, Team, everywhere};
use sinew::select;
use sinew::sync::channel::{self, Receiver, RecvError, Sender, TryRecvError};
use std::collections::{BinaryHeap, VecDeque};

#[test]
fn a_chain_reads_in_turn() {
    everywhere(|team| {
        const LINKS: usize = 10;
        let (sender, receiver) = channel::bounded(0);
        let (start, mut before) = channel::bounded(0);
        for link in 0..LINKS {
            let (after, next) = channel::bounded(0);
            let (turn, receiver) = (before, receiver.clone());
            team.start(move || {
                turn.recv().unwrap();
                assert_eq!(receiver.recv(), Ok(link));
                after.send(()).unwrap();
            });
            before = next;
        }
        start.send(()).unwrap();
        (0..LINKS).for_each(|number| sender.send(number).unwrap());
        assert_eq!(before.recv(), Ok(()), "a link of the chain broke");
    });
}

#[test]
fn a_long_chain_passes_one_message() {
    everywhere(|team| {
        let links = if team == Team::Threads { 100 } else { 10_000 };
        let (leftmost, result) = channel::bounded(0);
        let mut left: Sender<usize> = leftmost;
        let members: Vec<_> = (0..links)
            .map(|_| {
                let (next, right) = channel::bounded(0);
                let left = std::mem::replace(&mut left, next);
                team.start(move || left.send(right.recv().unwrap() + 1).unwrap())
            })
            .collect();
        team.start(move || left.send(0).unwrap());
        assert_eq!(result.recv(), Ok(links));
        members.into_iter().for_each(Member::end);
    });
}

/// Each prime has a member that sends its multiples. A number in none of these streams is a prime.
#[test]
fn primes_by_merging_multiples() {
    everywhere(|team| {
        let multiples_of = |prime: u32| {
            let (sender, receiver) = channel::bounded(0);
            team.start(move || {
                (2..).map(|n| n * prime).take_while(|&n| sender.send(n).is_ok()).for_each(drop);
            });
            receiver
        };
        let mut primes = vec![2];
        let first = multiples_of(2);
        let mut composites = BinaryHeap::from([(-i64::from(first.recv().unwrap()), 0)]);
        let mut sources = vec![first];
        for number in 3.. {
            let mut is_prime = true;
            while let Some(&(next, source)) = composites.peek()
                && -next == i64::from(number)
            {
                composites.pop();
                composites.push((-i64::from(sources[source].recv().unwrap()), source));
                is_prime = false;
            }
            if is_prime {
                primes.push(number);
                if primes.len() == 30 {
                    break;
                }
                let source = multiples_of(number);
                composites.push((-i64::from(source.recv().unwrap()), sources.len()));
                sources.push(source);
            }
        }
        assert_eq!(primes[..10], [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
        assert_eq!(primes[29], 113);
    });
}

#[test]
fn merged_filtered_and_owned() {
    everywhere(|team| {
        let numbers = |range: std::ops::Range<u32>| {
            let (sender, receiver) = channel::bounded(0);
            team.start(move || range.take_while(|&n| sender.send(n).is_ok()).for_each(drop));
            receiver
        };
        // Merge: each side keeps its order, and the stream ends when both do.
        let (one, two) = (numbers(0..20), numbers(100..130));
        let (out, merged) = channel::bounded(0);
        team.start(move || {
            let (_unused, never) = channel::bounded(0);
            let mut open = [Some(one), Some(two)];
            while open.iter().any(Option::is_some) {
                let from = |n: usize| open[n].as_ref().unwrap_or(&never);
                let (side, message) = select! {
                    recv(from(0)) -> message => (0, message),
                    recv(from(1)) -> message => (1, message),
                };
                match message {
                    Ok(number) => out.send(number).unwrap(),
                    Err(RecvError) => open[side] = None,
                }
            }
        });
        let (small, large): (Vec<_>, Vec<_>) = merged.iter().partition(|&number| number < 100);
        assert!(small.into_iter().eq(0..20) && large.into_iter().eq(100..130));
        // Filter: the stage ends when its reader does.
        let (out, even) = channel::bounded(0);
        let source = numbers(0..1000);
        let stage = team.start(move || {
            source.iter().filter(|n| n % 2 == 0).take_while(|&n| out.send(n).is_ok()).count()
        });
        assert!(even.iter().take(5).eq([0, 2, 4, 6, 8]));
        drop(even);
        assert_eq!(stage.end(), 5);
        // Ownership: one member at a time has the value.
        let (release, acquire) = channel::bounded(1);
        release.send(0).unwrap();
        let members: Vec<_> = (0..4)
            .map(|_| {
                let (release, acquire) = (release.clone(), acquire.clone());
                team.start(move || {
                    for _ in 0..50 {
                        let value = acquire.recv().unwrap();
                        assert_eq!(acquire.try_recv(), Err(TryRecvError::Empty));
                        release.send(value + 1).unwrap();
                    }
                })
            })
            .collect();
        members.into_iter().for_each(Member::end);
        assert_eq!(acquire.try_recv(), Ok(200));
    });
}

/// A fraction in lowest terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ratio(i128, i128);

impl Ratio {
    fn new(above: i128, below: i128) -> Ratio {
        let (mut a, mut b) = (above.abs(), below.abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let divisor = a.max(1) * below.signum();
        Ratio(above / divisor, below / divisor)
    }

    fn plus(self, other: Ratio) -> Ratio {
        Ratio::new(self.0 * other.1 + other.0 * self.1, self.1 * other.1)
    }

    fn times(self, other: Ratio) -> Ratio {
        Ratio::new(self.0 * other.0, self.1 * other.1)
    }
}

/// A power series. It answers each request with the next coefficient, and ends with its reader.
struct Series {
    ask: Sender<()>,
    answer: Receiver<Ratio>,
}

impl Series {
    /// Makes a series that calls `next` for each requested coefficient.
    fn new(team: Team, mut next: impl FnMut() -> Option<Ratio> + Send + 'static) -> Series {
        let (ask, asked) = channel::bounded(0);
        let (sender, answer) = channel::bounded(0);
        team.start(move || {
            while asked.recv().is_ok() {
                let Some(coefficient) = next() else { return };
                if sender.send(coefficient).is_err() {
                    return;
                }
            }
        });
        Series { ask, answer }
    }

    fn next(&self) -> Option<Ratio> {
        self.ask.send(()).ok()?;
        self.answer.recv().ok()
    }

    fn first(self, count: usize) -> Vec<Ratio> {
        (0..count).map(|_| self.next().unwrap()).collect()
    }

    fn constant(team: Team, number: i128) -> Series {
        Series::new(team, move || Some(Ratio(number, 1)))
    }

    fn plus(self, team: Team, other: Series) -> Series {
        Series::new(team, move || Some(self.next()?.plus(other.next()?)))
    }

    fn scaled(self, team: Team, factor: Ratio) -> Series {
        Series::new(team, move || Some(self.next()?.times(factor)))
    }

    fn times(self, team: Team, other: Series) -> Series {
        let (mut mine, mut theirs) = (Vec::new(), VecDeque::new());
        Series::new(team, move || {
            mine.push(self.next()?);
            theirs.push_front(other.next()?);
            let products = mine.iter().zip(&theirs).map(|(one, two)| one.times(*two));
            Some(products.fold(Ratio(0, 1), Ratio::plus))
        })
    }

    fn derivative(self, team: Team) -> Series {
        let mut power = 0;
        Series::new(team, move || {
            if power == 0 {
                self.next()?;
            }
            power += 1;
            Some(self.next()?.times(Ratio(power, 1)))
        })
    }

    fn integral(self, team: Team, constant: Ratio) -> Series {
        let mut power = 0;
        Series::new(team, move || {
            power += 1;
            if power == 1 { Some(constant) } else { Some(self.next()?.times(Ratio(1, power - 1))) }
        })
    }

    /// Substitutes `factor` times the square of the variable for the variable.
    fn of_square(self, team: Team, factor: Ratio) -> Series {
        let (mut turn, mut scale) = (0, Ratio(1, 1));
        Series::new(team, move || {
            turn += 1;
            if turn % 2 == 0 {
                return Some(Ratio(0, 1));
            }
            let coefficient = self.next()?.times(scale);
            scale = scale.times(factor);
            Some(coefficient)
        })
    }

    /// Splits a series for two readers. It serves one reader while it waits for a coefficient for
    /// the other, and ends with either.
    fn split(self, team: Team) -> [Series; 2] {
        let (asks, asked): (Vec<_>, Vec<_>) = (0..2).map(|_| channel::bounded(0)).unzip();
        let (senders, answers): (Vec<_>, Vec<_>) = (0..2).map(|_| channel::bounded(0)).unzip();
        team.start(move || {
            let (_unused, nobody) = channel::bounded(0);
            let (_also_unused, nothing) = channel::bounded(0);
            let mut queues = [VecDeque::new(), VecDeque::new()];
            let mut wanting = [false; 2];
            let mut awaited = false;
            loop {
                for n in 0..2 {
                    if !wanting[n] {
                        continue;
                    }
                    if let Some(coefficient) = queues[n].pop_front() {
                        wanting[n] = false;
                        if senders[n].send(coefficient).is_err() {
                            return;
                        }
                    } else if !awaited {
                        awaited = true;
                        if self.ask.send(()).is_err() {
                            return;
                        }
                    }
                }
                let open = |n: usize| if wanting[n] { &nobody } else { &asked[n] };
                let source = if awaited { &self.answer } else { &nothing };
                select! {
                    recv(open(0)) -> asked => match asked {
                        Ok(()) => wanting[0] = true,
                        Err(RecvError) => return,
                    },
                    recv(open(1)) -> asked => match asked {
                        Ok(()) => wanting[1] = true,
                        Err(RecvError) => return,
                    },
                    recv(source) -> coefficient => {
                        let Ok(coefficient) = coefficient else { return };
                        awaited = false;
                        queues.iter_mut().for_each(|queue| queue.push_back(coefficient));
                    }
                }
            }
        });
        let mut ends = asks.into_iter().zip(answers).map(|(ask, answer)| Series { ask, answer });
        [ends.next().unwrap(), ends.next().unwrap()]
    }

    /// Computes the exponential of a series without a constant term. The exponential is the
    /// integral of itself times the derivative of the series, so it is fed with its own
    /// coefficients.
    fn exp(self, team: Team) -> Series {
        let (ask, asked) = channel::bounded(0);
        let (sender, answer) = channel::bounded(0);
        let back = Series { ask, answer };
        let product = self.derivative(team).times(team, back);
        let [out, own] = product.integral(team, Ratio(1, 1)).split(team);
        team.start(move || {
            while asked.recv().is_ok() {
                let Some(coefficient) = own.next() else { return };
                if sender.send(coefficient).is_err() {
                    return;
                }
            }
        });
        out
    }
}

#[test]
fn power_series() {
    everywhere(|team| {
        const COUNT: usize = 10;
        let ones = || Series::constant(team, 1);
        let whole = |numbers: std::ops::RangeInclusive<i128>| numbers.map(|n| Ratio(n, 1));
        assert!(ones().first(5) == [Ratio(1, 1); 5]);
        assert!(ones().plus(team, Series::constant(team, 2)).first(COUNT) == [Ratio(3, 1); COUNT]);
        assert!(ones().scaled(team, Ratio(-2, 3)).first(COUNT) == [Ratio(-2, 3); COUNT]);
        assert!(ones().derivative(team).first(COUNT).into_iter().eq(whole(1..=10)));
        assert!(ones().times(team, ones()).first(COUNT).into_iter().eq(whole(1..=10)));
        let [one, two] = ones().derivative(team).split(team);
        assert!(one.plus(team, two).first(3) == [Ratio(2, 1), Ratio(4, 1), Ratio(6, 1)]);
        // 1 + x² + … with alternating signs is the derivative of the arc tangent.
        let arctan = ones().of_square(team, Ratio(-1, 1)).integral(team, Ratio(0, 1));
        let signs = [0, 1, 0, -1, 0, 1, 0, -1, 0, 1];
        let expected = (1..).zip(signs).map(|(n, sign)| Ratio::new(sign, i128::max(n - 1, 1)));
        assert!(arctan.first(COUNT).into_iter().eq(expected));
        // The exponential by its recurrence: n·eₙ is the sum of k·uₖ·eₙ₋ₖ.
        let mut expected = vec![Ratio(1, 1)];
        for n in 1..COUNT as i128 {
            let terms = (1..=n).map(|k| Ratio(k, 1).times(expected[(n - k) as usize]));
            expected.push(terms.fold(Ratio(0, 1), Ratio::plus).times(Ratio(1, n)));
        }
        assert_eq!(expected[4], Ratio(73, 24));
        assert_eq!(ones().exp(team).first(COUNT), expected);
    });
}
