//! Answers requests for the backtrace of one fiber.

use super::words;
use crate::message::request::Request;
use crate::message::response::Response;
use core::fmt::Write;
use http::StatusCode;
use sinew::inspect::{Backtrace, BacktraceError, FiberInfo};
use sinew::{Fiber, FiberId};

/// Answers with the backtrace of the fiber that the path names.
pub(super) fn of_request(request: &Request) -> Response {
    let id = request.param("id").unwrap_or_default();
    let full = request.query_value("full").is_some_and(|value| value != "0");
    let asks = sinew::current().id();
    let text = id.parse().ok().and_then(|id| sinew::blocking(|| text(id, asks, full)));
    match text {
        Some(text) => Response::text(text),
        None => Response::text(format!(
            "there is no fiber {id}: it has ended, or there never was one with this id\n"
        ))
        .with_status(StatusCode::NOT_FOUND),
    }
}

/// One line about the fiber, followed by its backtrace. `None` if the fiber has ended.
fn text(id: u64, asks: FiberId, full: bool) -> Option<String> {
    let info = sinew::fibers().into_iter().find(|info| info.id().as_u64() == id)?;
    let mut text = headline(&info);
    if info.id() == asks {
        text.push_str("this is the fiber that answers this request\n");
    }
    text.push('\n');
    let written = match of_any(&info.fiber) {
        Err(BacktraceError::Ended) => return None,
        Err(error) => writeln!(text, "no backtrace: {error}"),
        Ok(backtrace) if backtrace.is_empty() => writeln!(text, "the fiber has not started"),
        Ok(backtrace) if full => write!(text, "{backtrace:#}"),
        Ok(backtrace) => write!(text, "{backtrace}"),
    };
    debug_assert!(written.is_ok(), "writing to a string does not fail");
    Some(text)
}

fn headline(info: &FiberInfo) -> String {
    let mut line = format!("fiber {}", info.id());
    if let Some(name) = info.name() {
        line += &format!(" \"{}\"", name.escape_debug());
    }
    line += &format!(", {}", words::state(info.state));
    if let Some(wait) = info.wait {
        line += &format!(": {} for {:.1?}", words::kind(wait.kind), wait.since);
        if let Some(owner) = wait.owner {
            line += &format!(", held by fiber or thread {owner}");
        }
        if let Some(joined) = wait.joins {
            line += &format!(", for the end of fiber {joined}");
        }
    }
    if let (Some(carrier), Some(runtime)) = (info.carrier, &info.runtime) {
        line += &format!("; carrier {carrier} of \"{}\"", runtime.escape_debug());
    }
    line + "\n"
}

/// The backtrace of a fiber. Includes running fibers on platforms that can stop them.
fn of_any(fiber: &Fiber) -> Result<Backtrace, BacktraceError> {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    return fiber.backtrace_now();
    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    fiber.backtrace()
}
