//! Repeatable random numbers.

/// A small random number generator (xorshift). [`from_env`](Self::from_env) prints the seed.
#[derive(Clone, Debug)]
pub struct Seed(u64);

impl Seed {
    /// Takes the seed from the variable `SINEW_SEED`, or from the clock. Prints it, so that a
    /// failure can be repeated.
    #[expect(clippy::print_stderr, reason = "a failing test must show its seed")]
    pub fn from_env() -> Seed {
        let seed = Seed::number_of("SINEW_SEED");
        eprintln!("SINEW_SEED={seed}");
        Seed::new(seed)
    }

    /// The number in an environment variable, or a number from the clock.
    pub fn number_of(variable: &str) -> u64 {
        let seed = std::env::var(variable).ok().and_then(|text| text.parse().ok());
        seed.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |time| time.as_nanos() as u64)
        })
    }

    /// Makes a generator that begins with `seed`.
    pub fn new(seed: u64) -> Seed {
        Seed(seed | 1)
    }

    /// Makes another generator, for another fiber or thread.
    pub fn fork(&mut self) -> Seed {
        Seed(self.number() | 1)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.number()) * end as u128) >> 64) as usize
    }
}
