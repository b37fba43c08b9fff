//! `sinew demo`: fibers at work, in four short acts.

mod fibers;
mod generators;
mod ring;
mod stacks;

use std::io::{self, Write};

/// Which acts to show, and at which size.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The act to show; all acts by default.
    #[arg(value_enum)]
    acts: Vec<Act>,

    /// How many stacks to have alive at once (about 4.7 KiB of memory each).
    #[arg(long, default_value_t = Options::default().stacks, value_parser = clap::value_parser!(u32).range(1..))]
    stacks: u32,

    /// How many rounds the ring makes.
    #[arg(long, default_value_t = Options::default().rounds, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Act {
    /// The runtime: fibers that wait, a tree of fibers, and a cancelled fiber.
    Fibers,
    /// Functions that yield values as iterators, and functions that consume values.
    Generators,
    /// Fibers that resume each other in a circle.
    Ring,
    /// A million guarded stacks alive at once.
    Stacks,
}

impl Default for Options {
    fn default() -> Self {
        Options { acts: Vec::new(), stacks: 1_000_000, rounds: 1_000_000 }
    }
}

pub(crate) fn run(options: &Options, out: &mut impl Write) -> io::Result<()> {
    let shows = |act| options.acts.is_empty() || options.acts.contains(&act);
    if shows(Act::Fibers) {
        fibers::show(out)?;
    }
    if shows(Act::Generators) {
        generators::show(out)?;
    }
    if shows(Act::Ring) {
        ring::show(out, options.rounds)?;
    }
    if shows(Act::Stacks) {
        stacks::show(out, options.stacks as usize)?;
    }
    Ok(())
}
