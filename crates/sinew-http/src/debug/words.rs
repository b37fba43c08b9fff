//! The names of states and kinds of waits.

use sinew::{FiberState, WaitKind};

/// The states in which a fiber is listed.
pub(super) const STATES: [FiberState; 6] = [
    FiberState::Created,
    FiberState::Runnable,
    FiberState::Running,
    FiberState::Suspended,
    FiberState::Yielded,
    FiberState::Interrupted,
];

/// The name of a state in the API.
pub(super) fn state(state: FiberState) -> &'static str {
    match state {
        FiberState::Created => "created",
        FiberState::Runnable => "runnable",
        FiberState::Running => "running",
        FiberState::Suspended => "suspended",
        FiberState::Yielded => "yielded",
        FiberState::Interrupted => "interrupted",
        FiberState::Dead => "dead",
        _ => "unknown",
    }
}

/// The name of a kind of wait in the API.
pub(super) fn kind(kind: WaitKind) -> &'static str {
    match kind {
        WaitKind::None => "none",
        WaitKind::Sleep => "sleep",
        WaitKind::Park => "park",
        WaitKind::Join => "join",
        WaitKind::Predicate => "predicate",
        WaitKind::Future => "future",
        WaitKind::Scope => "scope",
        WaitKind::Lock => "lock",
        WaitKind::Key => "key",
        WaitKind::Condvar => "condvar",
        WaitKind::Event => "event",
        WaitKind::Value => "value",
        WaitKind::Semaphore => "semaphore",
        WaitKind::Send => "send",
        WaitKind::Receive => "receive",
        WaitKind::Select => "select",
        WaitKind::Readable => "readable",
        WaitKind::Writable => "writable",
        WaitKind::Blocking => "blocking",
        _ => "unknown",
    }
}
