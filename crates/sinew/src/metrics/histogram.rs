//! Histograms of durations.

use crate::primitive::{AtomicU64, Ordering};
use core::fmt;
use core::time::Duration;

/// The order of magnitude of a duration and the next `BITS` bits select its bucket. So durations in
/// one bucket differ by less than an eighth.
const BITS: u32 = 3;
const PER_DOUBLING: usize = 1 << BITS;
const BUCKETS: usize = (64 - BITS as usize + 1) * PER_DOUBLING;

/// Returns the bucket of a number of nanoseconds.
fn bucket(nanos: u64) -> usize {
    if nanos < PER_DOUBLING as u64 {
        return nanos as usize;
    }
    let shift = 63 - nanos.leading_zeros() - BITS;
    (shift as usize + 1) * PER_DOUBLING + ((nanos >> shift) as usize & (PER_DOUBLING - 1))
}

/// Returns the largest number of nanoseconds in a bucket.
fn most(bucket: usize) -> u64 {
    match bucket / PER_DOUBLING {
        0 => bucket as u64,
        doubling => {
            let first = (PER_DOUBLING + bucket % PER_DOUBLING) as u64;
            let shift = doubling - 1;
            (first << shift) | ((1 << shift) - 1)
        }
    }
}

/// Counts that one thread adds to, and any thread reads.
pub(crate) struct Counts {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Counts {
    pub(crate) const fn new() -> Counts {
        Counts { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum: AtomicU64::new(0) }
    }

    /// Counts a duration. Only one thread may do this at a time.
    pub(crate) fn add(&self, nanos: u64) {
        super::add(&self.buckets[bucket(nanos)], 1);
        super::add(&self.sum, nanos);
    }

    pub(crate) fn read(&self) -> Histogram {
        let counts = self.buckets.each_ref().map(|count| count.load(Ordering::Relaxed)).into();
        Histogram { counts, sum: self.sum.load(Ordering::Relaxed) }
    }
}

/// A histogram of durations. Durations in one bucket differ by less than an eighth.
///
/// # Examples
/// ```
/// let runtime = sinew::Runtime::builder().carriers(1).measure(true).build()?;
/// runtime.run(|| (0..100).for_each(|_| sinew::spawn(|| ()).join().unwrap()));
/// let run_time = runtime.handle().metrics().run_time;
/// assert!(run_time.count() >= 100);
/// println!("median {:?}, longest {:?}", run_time.quantile(0.5), run_time.quantile(1.0));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    sum: u64,
}

impl Histogram {
    /// Returns how many durations were counted.
    ///
    /// # Examples
    /// ```
    /// # let runtime = sinew::Runtime::builder().measure(true).build()?;
    /// runtime.run(|| sinew::spawn(|| ()).join().unwrap());
    /// assert!(runtime.handle().metrics().run_time.count() >= 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations.
    ///
    /// # Examples
    /// ```
    /// # let runtime = sinew::Runtime::builder().measure(true).build()?;
    /// # runtime.run(|| ());
    /// let run_time = runtime.handle().metrics().run_time;
    /// println!("{:?} in {} stretches", run_time.sum(), run_time.count());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Returns a duration that the given share of all counted durations does not exceed: 0.5 gives
    /// the median, 1 gives the longest. The result is the upper end of a bucket, so it may be up to
    /// an eighth too long. Returns `None` if nothing was counted, or if `share` is not between 0
    /// and 1.
    ///
    /// # Examples
    /// ```
    /// # let runtime = sinew::Runtime::builder().measure(true).build()?;
    /// # runtime.run(|| sinew::yield_now());
    /// let run_time = runtime.handle().metrics().run_time;
    /// assert!(run_time.quantile(0.5) <= run_time.quantile(0.99));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 || !(0.0..=1.0).contains(&share) {
            return None;
        }
        let mut left = ((share * count as f64).ceil() as u64).clamp(1, count);
        self.buckets().find_map(|(most, count)| {
            left = left.saturating_sub(count);
            (left == 0).then_some(most)
        })
    }

    /// Returns the buckets that are not empty. Each item is the longest duration that the bucket
    /// can hold, and the count of the bucket.
    ///
    /// # Examples
    /// ```
    /// # let runtime = sinew::Runtime::builder().measure(true).build()?;
    /// # runtime.run(|| ());
    /// let run_time = runtime.handle().metrics().run_time;
    /// let sum: u64 = run_time.buckets().map(|(_, count)| count).sum();
    /// assert_eq!(sum, run_time.count());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let all = self.counts.iter().copied().enumerate();
        all.filter(|(_, count)| *count > 0)
            .map(|(bucket, count)| (Duration::from_nanos(most(bucket)), count))
    }

    /// Adds the counts of another histogram.
    pub(crate) fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count += other);
        self.sum += other.sum;
    }
}

/// A histogram without counts.
impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], sum: 0 }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_a_bucket_that_is_not_too_wide() {
        let mut numbers: Vec<u64> = (0..2000).collect();
        numbers.extend((0..64).flat_map(|bit| {
            let power = 1_u64 << bit;
            [power.wrapping_sub(1), power, power.wrapping_add(power / 3)]
        }));
        numbers.push(u64::MAX);
        for number in numbers {
            let bucket = bucket(number);
            assert!(number <= most(bucket), "{number}");
            assert!(most(bucket) - number <= number / 8, "{number}");
            assert!(bucket == 0 || most(bucket - 1) < number, "{number}");
        }
        assert_eq!(most(BUCKETS - 1), u64::MAX);
    }

    #[test]
    fn quantiles_are_within_a_bucket() {
        let counts = Counts::new();
        assert_eq!(counts.read().quantile(0.5), None);
        (1..=1000).for_each(|nanos| counts.add(1000 * nanos));
        let histogram = counts.read();
        assert_eq!(histogram.count(), 1000);
        assert_eq!(histogram.sum(), Duration::from_nanos(500_500_000));
        for (share, exact) in [(0.0, 1000), (0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000)] {
            let found = histogram.quantile(share).unwrap().as_nanos() as u64;
            assert!(found >= exact && found - exact <= exact / 8, "{share}: {found}");
        }
        assert_eq!(histogram.quantile(1.1), None);
        assert_eq!(histogram.quantile(f64::NAN), None);
    }
}
