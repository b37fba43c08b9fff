//! A view of the fibers of another process, as `top` is one of processes.
//!
//! `fetch` asks a server, `view` is what it says, `target` where to ask, `words` puts numbers into words,
//! `layout` makes lines of it all, `screen` has the terminal, and `live` is what the user does.

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

/// What to look at, and how.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The address of the server's admin listener, or of the debug routes wherever they are.
    #[arg(default_value = "http://127.0.0.1:8081")]
    url: String,

    /// Seconds between two looks.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    interval: f64,

    /// What to sort by: id, name, state, wait, since, carrier, age, waits or stack; `-age` for the reverse.
    #[arg(long, default_value = "id", value_parser = sort, allow_hyphen_values = true)]
    sort: String,

    /// Shows fibers only that have these words in name, id, state, runtime or kind of wait.
    #[arg(long, default_value = "")]
    filter: String,

    /// Prints what there is once, as plain text. Also done if the output is no terminal.
    #[arg(long)]
    once: bool,

    /// Accepts any certificate, also one that nobody vouches for.
    #[arg(long)]
    insecure: bool,

    /// How many fibers to print at most, if it is done once.
    #[arg(long, default_value_t = 500)]
    limit: usize,
}

/// What can be sorted by, in the order in which a key goes through it.
const SORTS: [&str; 9] =
    ["id", "-since", "-age", "-waits", "-stack", "name", "state", "wait", "carrier"];

fn sort(text: &str) -> Result<String, String> {
    let column = |sort: &str| sort.trim_start_matches('-').to_owned();
    match SORTS.iter().any(|known| column(known) == column(text)) {
        true => Ok(text.into()),
        false => Err(format!("nothing can be sorted by {text:?}")),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("an interval is between 0.05 and 3600 seconds".into()),
    }
}

pub(crate) fn run(options: &Options, out: &mut impl Write) -> io::Result<()> {
    let target = Target::parse(&options.url)?;
    let wish = target::Wish {
        sort: options.sort.clone(),
        filter: options.filter.clone(),
        limit: options.limit,
    };
    // What is wrong from the beginning is said before the screen is taken.
    let client = Client::new(options.insecure);
    let first = look(&client, &target, &wish)?;
    if options.once || !io::stdout().is_terminal() {
        return print(&first, out);
    }
    live::run((&client, &target), wish, first, Duration::from_secs_f64(options.interval))
}

/// Asks for everything.
fn look(client: &Client, target: &Target, wish: &target::Wish) -> io::Result<View> {
    let text = client.fetch(&target.fibers(wish))?;
    serde_json::from_str(&text).map_err(|error| {
        let message = format!("{target} is no sinew server, or one of another version: {error}");
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

/// So wide is what nobody's window limits.
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
