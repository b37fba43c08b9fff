//! From an address to the functions that are there, inlined ones included.

use super::super::backtrace::Symbol;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What was found, and which objects were loaded then.
type Known = ((u64, u64), HashMap<usize, Arc<[Symbol]>>);

/// The functions at an address, the innermost first. Addresses are looked up once: reading line tables
/// takes far longer than walking a stack.
pub(in super::super) fn at(address: usize) -> Arc<[Symbol]> {
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let (version, known) = known.get_or_insert_default();
    let loaded = super::unwind::objects::version();
    if *version != loaded {
        // Other objects may be at the same addresses by now.
        *version = loaded;
        known.clear();
    }
    if let Some(symbols) = known.get(&address) {
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
    if known.len() >= MOST {
        known.clear();
    }
    let symbols: Arc<[Symbol]> = symbols.into();
    known.insert(address, symbols.clone());
    symbols
}

/// How many addresses are kept.
const MOST: usize = 1 << 16;
