//! Reports a failure with its round: a bout that fails or hangs ends the process.

use super::bout::{Setting, Shelf};
use sinew::Fiber;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// The state of the current round.
struct Now {
    seed: u64,
    round: u64,
    what: &'static str,
    setting: Setting,
    since: Instant,
    bouts: u64,
    fibers: Vec<Fiber>,
}

static NOW: Shelf<Option<Now>> = Shelf::new(None);

/// Records the beginning of a round.
pub(super) fn new_round(seed: u64, round: u64, what: &'static str, setting: Setting) {
    let (since, fibers) = (Instant::now(), Vec::new());
    let new = Some(Now { seed, round, what, setting, since, bouts: 0, fibers });
    NOW.with(|now| *now = new);
}

/// Records the beginning of a bout.
pub(super) fn new_bout() {
    NOW.with(|now| {
        if let Some(now) = now {
            now.since = Instant::now();
            now.bouts += 1;
            now.fibers.clear();
        }
    });
}

/// Records another fiber of the bout.
pub(super) fn new_fiber(fiber: Fiber) {
    NOW.with(|now| {
        if let Some(now) = now {
            now.fibers.push(fiber);
        }
    });
}

/// Records that all rounds are over.
pub(super) fn over() {
    NOW.with(|now| *now = None);
}

/// Starts a thread that ends the process when a bout takes longer than `SINEW_STRESS_PATIENCE`
/// seconds, or 60.
pub(super) fn begin() {
    let patience = std::env::var("SINEW_STRESS_PATIENCE").ok().and_then(|text| text.parse().ok());
    let patience = Duration::from_secs(patience.unwrap_or(60));
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let hangs = |now: &Now| now.since.elapsed() > patience;
            if NOW.with(|now| now.as_ref().is_some_and(hangs)) {
                fail("a bout does not end");
            }
        }
    });
    // Print panics of workers directly, because the test harness captures output.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        say(&format!("{info}\n"));
        before(info);
    }));
}

/// Reports the current round, and ends the process.
pub(super) fn fail(why: &str) -> ! {
    let mut text = format!("\nstress: {why}\n");
    NOW.with(|now| {
        let Some(Now { seed, round, what, setting, bouts, fibers, .. }) = now else { return };
        let _ = writeln!(
            text,
            "SINEW_STRESS_SEED={seed} SINEW_STRESS_ONLY={what}\n\
             round {round}, bout {bouts}: {what} with {setting:?}"
        );
        for fiber in fibers.iter().filter(|fiber| fiber.is_alive()) {
            let (name, state) = (fiber.name().unwrap_or_default(), fiber.state());
            let (id, kind) = (fiber.id(), fiber.waits_for());
            let _ = writeln!(text, "fiber {id} \"{name}\": {state:?}, waits for {kind:?}");
        }
    });
    say(&text);
    std::process::abort();
}

/// Writes to standard error itself, which is not captured.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
