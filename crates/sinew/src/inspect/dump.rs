//! Writes a listing of all fibers, grouped by place: as text for people, and as JSON for programs.

use super::backtrace::Backtrace;
use super::json::Json;
use super::snapshot::{FiberInfo, WaitInfo, fibers};
use crate::fiber::{FiberState, describe};
use core::time::Duration;
use std::collections::HashMap;
use std::io::{self, Write};

/// Fibers with one state and one backtrace.
struct Group {
    state: FiberState,
    backtrace: Backtrace,
    members: Vec<FiberInfo>,
}

/// Lists every fiber of the process with its wait and its place. Fibers in the same place form a
/// group, and the largest group comes first.
///
/// Fibers go on during the call. Fibers that run, or were just woken, are listed without a place.
/// Any thread may call this function, even a thread outside of every runtime while all carriers are
/// stuck.
///
/// # Errors
/// Returns the errors of `out`.
///
/// # Examples
/// ```
/// let fiber = sinew::FiberBuilder::new().name("stuck").spawn(sinew::park)?;
/// sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
/// let mut text = Vec::new();
/// sinew::dump(&mut text)?;
/// assert!(String::from_utf8_lossy(&text).contains("fiber \"stuck\""));
/// fiber.fiber().unpark();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn dump(out: &mut impl Write) -> io::Result<()> {
    let mut text = Vec::new();
    super::with_room(|| write_text(&mut text))?;
    out.write_all(&text)
}

fn write_text(out: &mut Vec<u8>) -> io::Result<()> {
    let groups = groups();
    let count: usize = groups.iter().map(|group| group.members.len()).sum();
    writeln!(out, "{} in {}", counted(count, "fiber"), counted(groups.len(), "place"))?;
    for group in &groups {
        writeln!(out)?;
        write_group(out, group)?;
    }
    Ok(())
}

/// The dump lists this many fibers of a group one by one.
const NAMED: usize = 8;

fn write_group(out: &mut impl Write, group: &Group) -> io::Result<()> {
    let members = &group.members;
    write!(out, "{} {}", counted(members.len(), "fiber"), in_words(group.state))?;
    let waits = || members.iter().filter_map(|info| info.wait);
    if let Some(wait) = waits().next() {
        let shortest = waits().map(|wait| wait.since).min().unwrap_or_default();
        let longest = waits().map(|wait| wait.since).max().unwrap_or_default();
        write!(out, " in {}", wait.kind.operation())?;
        if members.len() == 1 {
            write!(out, "{} for {shortest:.1?}", what(&wait))?;
        } else {
            write!(out, " for {shortest:.1?} to {longest:.1?}")?;
        }
    }
    writeln!(out, ":")?;
    for info in members.iter().take(NAMED) {
        write!(out, "  {}", describe(info.fiber.control()))?;
        if let (Some(carrier), Some(runtime)) = (info.carrier, &info.runtime) {
            write!(out, " on carrier {carrier} of \"{}\"", runtime.escape_debug())?;
        }
        write!(out, ", {} old{}", rounded(info.age), traits(info))?;
        match &info.wait {
            Some(wait) if members.len() > 1 => {
                writeln!(out, "; {}{}", wait.kind.operation(), what(wait))?
            }
            _ => writeln!(out)?,
        }
    }
    if members.len() > NAMED {
        writeln!(out, "  and {} more", members.len() - NAMED)?;
    }
    write!(out, "{}", group.backtrace)
}

/// Describes the object of a wait, as an addition to the wait's kind.
fn what(wait: &WaitInfo) -> String {
    use crate::fiber::WaitKind;
    let place = match wait.kind {
        WaitKind::Join => String::new(),
        WaitKind::Readable | WaitKind::Writable => format!(" {}", wait.address),
        _ if wait.address != 0 => format!(" at {:#x}", wait.address),
        _ => String::new(),
    };
    let what = match wait {
        WaitInfo { joins: Some(id), .. } => format!(" of fiber {id}"),
        WaitInfo { owner: Some(id), .. } => format!("{place}, which fiber or thread {id} has,"),
        _ => place,
    };
    match wait.left {
        Some(left) => format!("{}, at most {left:.1?} more,", what.trim_end_matches(',')),
        None => what,
    }
}

/// Describes further properties of a fiber, as an addition to its age.
fn traits(info: &FiberInfo) -> String {
    let all = [
        (info.pinned, ", pinned"),
        (info.migratable, ", migratable"),
        (info.cancel_requested, ", cancel requested"),
    ];
    all.iter().filter(|(is_so, _)| *is_so).map(|(_, words)| *words).collect()
}

fn in_words(state: FiberState) -> &'static str {
    match state {
        FiberState::Created => "not submitted",
        FiberState::Runnable => "ready to run",
        FiberState::Running => "running",
        FiberState::Suspended => "waiting",
        FiberState::Yielded => "has yielded",
        FiberState::Interrupted => "interrupted while other code runs on its thread",
        FiberState::Dead => "ended",
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn rounded(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

fn groups() -> Vec<Group> {
    let mut places: HashMap<(FiberState, Backtrace), usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for info in fibers() {
        // A fiber that was suspended in the snapshot and has no backtrace has just been woken.
        let (state, backtrace) = match info.fiber.backtrace() {
            Ok(backtrace) => (info.state, backtrace),
            Err(_) if info.state == FiberState::Suspended => {
                (FiberState::Runnable, Backtrace::default())
            }
            Err(_) => (info.state, Backtrace::default()),
        };
        let index = *places.entry((state, backtrace.clone())).or_insert_with(|| {
            groups.push(Group { state, backtrace, members: Vec::new() });
            groups.len() - 1
        });
        groups[index].members.push(info);
    }
    groups.sort_by_key(|group| core::cmp::Reverse(group.members.len()));
    groups
}

/// Writes the listing of [`dump`] as one line of JSON: an object with a list of `groups`.
///
/// Each group has a `state`, the `frames` of its stack, the innermost first, and its `fibers`. A
/// frame has an `address` and the `functions` at that place, inlined functions first, with `name`,
/// `file` and `line`. A fiber has `id`, `name`, `runtime`, `carrier`, `age_ms`, `waits` (how many
/// it has begun), `pinned`, `migratable`, `cancel_requested`, and `wait`. A wait has `kind` and
/// `address`, the ids of the fiber that it `joins` and of the `owner` of the lock, `since_us`, and
/// `left_us` if it has a deadline. Unknown values are null.
///
/// # Errors
/// Returns the errors of `out`.
///
/// # Examples
/// ```
/// let mut text = Vec::new();
/// sinew::inspect::dump_json(&mut text)?;
/// assert!(text.starts_with(b"{\"groups\":["));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn dump_json(out: &mut impl Write) -> io::Result<()> {
    let mut text = Vec::new();
    super::with_room(|| write_json(&mut text))?;
    out.write_all(&text)
}

fn write_json(out: &mut Vec<u8>) -> io::Result<()> {
    let mut json = Json::new(out);
    json.object(|json| {
        json.key("groups")?;
        json.list(groups().iter(), |json, group| {
            json.object(|json| {
                json.text("state", in_words(group.state))?;
                json.key("fibers")?;
                json.list(group.members.iter(), write_fiber)?;
                json.key("frames")?;
                json.list(group.backtrace.frames().iter(), |json, frame| {
                    json.object(|json| {
                        json.text("address", &format!("{:#x}", frame.address()))?;
                        json.key("functions")?;
                        json.list(frame.symbols().iter(), |json, symbol| {
                            json.object(|json| {
                                json.text_or_null("name", symbol.name.as_deref())?;
                                let file =
                                    symbol.file.as_ref().map(|file| file.display().to_string());
                                json.text_or_null("file", file.as_deref())?;
                                json.number_or_null("line", symbol.line.map(u64::from))
                            })
                        })
                    })
                })
            })
        })
    })?;
    json.end()
}

fn write_fiber<W: Write>(json: &mut Json<'_, W>, info: &FiberInfo) -> io::Result<()> {
    json.object(|json| {
        json.number("id", info.id().as_u64())?;
        json.text_or_null("name", info.name())?;
        json.text_or_null("runtime", info.runtime.as_deref())?;
        json.number_or_null("carrier", info.carrier.map(|carrier| carrier as u64))?;
        json.number("age_ms", info.age.as_millis() as u64)?;
        json.number("waits", info.waits.into())?;
        json.boolean("pinned", info.pinned)?;
        json.boolean("migratable", info.migratable)?;
        json.boolean("cancel_requested", info.cancel_requested)?;
        json.key("wait")?;
        match &info.wait {
            None => json.null(),
            Some(wait) => json.object(|json| {
                json.text("kind", wait.kind.operation())?;
                json.text("address", &format!("{:#x}", wait.address))?;
                json.number_or_null("joins", wait.joins.map(|id| id.as_u64()))?;
                json.number_or_null("owner", wait.owner.map(|id| id.as_u64()))?;
                json.number("since_us", wait.since.as_micros() as u64)?;
                json.number_or_null("left_us", wait.left.map(|left| left.as_micros() as u64))
            }),
        }
    })
}
