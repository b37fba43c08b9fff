//! The names of states and kinds of waits.

use sinew::{State, WaitKind};

/// The states in which a fiber is listed.
pub(super) const STATES: [State; 6] = [
    State::Created,
    State::Runnable,
    State::Running,
    State::Suspended,
    State::Yielded,
    State::Interrupted,
];

/// The name of a state in the API.
pub(super) fn state(state: State) -> &'static str {
    match state {
        State::Created => "created",
        State::Runnable => "runnable",
        State::Running => "running",
        State::Suspended => "suspended",
        State::Yielded => "yielded",
        State::Interrupted => "interrupted",
        State::Dead => "dead",
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
