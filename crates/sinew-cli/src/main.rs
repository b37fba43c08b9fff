//! The `sinew` command.
//!
//! `sinew demo` shows fibers at work: the runtime, generators, a ring, a million stacks.

mod demo;

use clap::{Parser, Subcommand};

/// Fibers for Rust: demonstrations of the runtime.
#[derive(Parser)]
#[command(name = "sinew", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Shows the runtime, first-class fibers and stacks at work.
    Demo(demo::Options),
}

fn main() -> std::process::ExitCode {
    let Command::Demo(options) = Cli::parse().command.unwrap_or_default();
    match demo::run(&options, &mut std::io::stdout().lock()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // Whoever reads the output may stop early, as `head` does.
            if error.kind() != std::io::ErrorKind::BrokenPipe {
                report(&error);
            }
            std::process::ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "a command reports its errors there")]
fn report(error: &std::io::Error) {
    eprintln!("sinew: {error}");
}

impl Default for Command {
    fn default() -> Self {
        Command::Demo(demo::Options::default())
    }
}
