//! The `sinew` command.
//!
//! `sinew serve` is an HTTP server, `sinew top` shows the fibers of a server, `sinew demo` shows
//! fibers at work.

mod demo;
mod serve;
mod top;

use clap::{CommandFactory, Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;

/// Fibers for Rust: a server, a view of its fibers, and demonstrations of the runtime.
#[derive(Parser)]
#[command(name = "sinew", version, about, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  sinew serve                          a server at http://127.0.0.1:8080/
  sinew serve --files . --listing      with the files of this directory
  sinew serve --self-signed            with HTTPS
  sinew top                            the fibers of that server, from http://127.0.0.1:8081/
  sinew demo                           fibers, generators, a ring, a million stacks

`sinew COMMAND --help` explains a command.";

#[derive(Subcommand)]
enum Command {
    /// Serves HTTP: a greeting, files, and a live view of its own fibers.
    Serve(serve::Options),
    /// Shows the fibers of a server, updated continuously.
    Top(top::Options),
    /// Shows the runtime, first-class fibers and stacks at work.
    Demo(demo::Options),
}

fn main() -> ExitCode {
    let out = &mut io::stdout();
    let done = match &Cli::parse().command {
        Some(Command::Serve(options)) => serve::run(options),
        Some(Command::Top(options)) => top::run(options, out),
        Some(Command::Demo(options)) => demo::run(options, &mut out.lock()),
        None => write!(out, "{}", Cli::command().render_help()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The program that reads the output may stop early, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

fn report(error: &io::Error) {
    sinew::io::LineLog::stderr().write_line(format_args!("sinew: {error}"));
}
