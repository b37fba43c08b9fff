//! Looks up the functions at an address, inlined ones included.

use super::super::backtrace::Symbol;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The results of earlier look-ups.
#[derive(Default)]
struct Known {
    /// The version of the loaded objects at the time of these look-ups.
    version: (u64, u64),
    functions: HashMap<usize, Arc<[Symbol]>>,
    /// When tables were last read; `None` if their memory was given back since.
    read: Option<Instant>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// How long the tables of the program are kept for the next look-up. They may take some tens of
/// megabytes.
const KEPT: Duration = Duration::from_secs(5);

fn known() -> MutexGuard<'static, Option<Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the functions at an address, the innermost first. Each address is looked up once,
/// because reading line tables takes far longer than walking a stack.
pub(in super::super) fn at(address: usize) -> Arc<[Symbol]> {
    let mut known = known();
    let known = known.get_or_insert_default();
    let loaded = super::unwind::objects::version();
    if known.version != loaded {
        // Other objects may be at these addresses.
        known.version = loaded;
        known.functions.clear();
    }
    if let Some(symbols) = known.functions.get(&address) {
        return symbols.clone();
    }
    let mut symbols = Vec::new();
    backtrace::resolve(core::ptr::without_provenance_mut(address), |symbol| {
        symbols.push(Symbol {
            name: symbol.name().map(|name| format!("{name:#}")),
            file: symbol.filename().map(|file| file.to_path_buf()),
            line: symbol.lineno(),
            column: symbol.colno(),
        });
    });
    if known.read.replace(Instant::now()).is_none()
        && crate::carrier::thread::start("sinew symbols".into(), give_back_later).is_err()
    {
        // The next look-up tries again.
        known.read = None;
    }
    if known.functions.len() >= MOST {
        known.functions.clear();
    }
    let symbols: Arc<[Symbol]> = symbols.into();
    known.functions.insert(address, symbols.clone());
    symbols
}

/// Waits until no tables were read for a while, and gives their memory back. The names that were
/// found stay.
fn give_back_later() {
    let mut left = KEPT;
    loop {
        std::thread::sleep(left);
        let mut known = known();
        let Some(known) = &mut *known else { return };
        left = KEPT.saturating_sub(known.read.map_or(KEPT, |read| read.elapsed()));
        if left.is_zero() {
            // Done under the lock, so a later look-up reads the tables again.
            backtrace::clear_symbol_cache();
            known.read = None;
            break;
        }
    }
    crate::release_free_memory();
}

/// How many addresses are kept.
const MOST: usize = 1 << 16;
