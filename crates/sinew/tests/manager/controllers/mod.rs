//! Loops that run managers: the simple loop, executors, event loops, and a user's own.

mod event_loops;
mod executors;
mod simple;
mod users_own;
