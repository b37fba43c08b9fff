//! `sinew top`: a live view of the fibers of another process.
//!
//! `target` is the address of a server, `fetch` sends it a request, and `view` is the parsed
//! answer. `history` keeps past answers for rates and charts. `words` formats numbers, `line` and
//! `layout` make lines of text, `screen` owns the terminal, and `live` handles keys and updates.

mod fetch;
mod history;
mod layout;
mod line;
mod live;
mod screen;
mod target;
mod view;
mod words;

use fetch::Client;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;
use target::Target;
use view::View;

/// Which server and fibers to show, and how.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The address of the server's admin listener, or of another place that serves the debug
    /// routes.
    #[arg(default_value = "http://127.0.0.1:8081")]
    url: String,

    /// Seconds between two updates.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    interval: f64,

    /// The sort column: id, name, state, wait, since, carrier, age, waits or stack; `-age` sorts in
    /// reverse.
    #[arg(long, default_value = "id", value_parser = sort, allow_hyphen_values = true)]
    sort: String,

    /// Shows only fibers that have these words in name, id, state, runtime or kind of wait.
    #[arg(long, default_value = "")]
    filter: String,

    /// Prints the fibers once, as plain text. This is the default if the output is not a terminal.
    #[arg(long)]
    once: bool,

    /// Accepts any certificate, including self-signed ones.
    #[arg(long)]
    insecure: bool,

    /// How many fibers to print at most, with --once.
    #[arg(long, default_value_t = 500)]
    limit: usize,
}

/// The sort columns, in the order in which the key `s` goes through them.
const SORTS: [&str; 9] =
    ["id", "-since", "-age", "-waits", "-stack", "name", "state", "wait", "carrier"];

fn sort(text: &str) -> Result<String, String> {
    let column = |sort: &str| sort.trim_start_matches('-').to_owned();
    match SORTS.iter().any(|known| column(known) == column(text)) {
        true => Ok(text.into()),
        false => Err(format!("there is no column {text:?}")),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("the interval must be between 0.05 and 3600 seconds".into()),
    }
}

pub(crate) fn run(options: &Options, out: &mut impl Write) -> io::Result<()> {
    let target = Target::parse(&options.url)?;
    let wish = target::Wish {
        sort: options.sort.clone(),
        filter: options.filter.clone(),
        limit: options.limit,
    };
    // Report errors of the first request before the screen is taken.
    let client = Client::new(options.insecure);
    let first = look(&client, &target, &wish)?;
    if options.once || !io::stdout().is_terminal() {
        return print(&first, out);
    }
    live::run((&client, &target), wish, first, Duration::from_secs_f64(options.interval))
}

/// Fetches the fibers from the server.
fn look(client: &Client, target: &Target, wish: &target::Wish) -> io::Result<View> {
    let text = client.fetch(&target.fibers(wish))?;
    serde_json::from_str(&text).map_err(|error| {
        let message = format!("{target} is no sinew server, or has another version: {error}");
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

/// The width of the output of `--once`, in columns.
const WIDTH: usize = 160;

fn print(view: &View, out: &mut impl Write) -> io::Result<()> {
    for line in layout::totals(view, None, WIDTH) {
        writeln!(out, "{line}")?;
    }
    for line in layout::counts(view, WIDTH) {
        writeln!(out, "{line}")?;
    }
    for line in layout::deadlocks(view, WIDTH) {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "\n{}", layout::heads(WIDTH))?;
    for fiber in &view.fibers {
        writeln!(out, "{}", layout::row(fiber, view, WIDTH, false))?;
    }
    if view.fibers.len() < view.matched {
        writeln!(out, "and {} more", view.matched - view.fibers.len())?;
    }
    Ok(())
}
