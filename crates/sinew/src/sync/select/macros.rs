//! The macro `select!`.

/// Waits for the first of several operations, and evaluates the expression of that arm.
///
/// ```text
/// select! {
///     recv(receiver) -> result => expression,
///     send(sender, message) -> result => expression,
///     wait(future) -> value => expression,
///     join(fiber) -> result => expression,
///     after(duration) => expression,
///     at(instant) => expression,
///     default => expression,             // if no other operation is possible at once
///     default(duration) => expression,   // if no other operation is possible in time
/// }
/// ```
///
/// If several operations are possible, each has the same chance to be selected. An arm borrows its
/// object until one arm is selected, so an expression that creates its object does not compile:
/// bind the object with `let` first. The result of an arm is the result of the method of the same
/// name, such as [`recv`](crate::sync::channel::Receiver::recv),
/// [`send`](crate::sync::channel::Sender::send) or [`join`](crate::JoinHandle::join). If a channel
/// is disconnected and a `recv` finds no message in it, the arm is possible at once, and its result
/// is an error. A `send` on a disconnected channel is possible at once as well, and gives the
/// message back in its error. The expressions for messages, durations and instants are evaluated
/// before the wait. The message of an arm that is not selected is dropped.
///
/// The pattern of an arm has to match every result. To keep a message that is not sent, create its
/// arm before the wait, and use the function [`select`](crate::sync::select):
///
/// ```
/// use sinew::sync::channel::bounded;
/// use sinew::sync::{Patience, select};
///
/// let (full, _receiver) = bounded(0);
/// let mut arm = full.arm("message");
/// assert_eq!(select(&mut [&mut arm], Patience::None), None);
/// assert_eq!(arm.take().unwrap_err().0, "message");
/// ```
///
/// `recv` takes a [`Receiver`](crate::sync::channel::Receiver) or a
/// [`BroadcastReceiver`](crate::sync::channel::BroadcastReceiver). `wait` takes one of these
/// objects:
///
/// - a [`FiberFuture`](crate::sync::FiberFuture),
/// - a [`Semaphore`](crate::sync::Semaphore::arm), for one permit,
/// - a [`SequencerTurn`](crate::sync::SequencerTurn), from
///   [`Sequencer::enter`](crate::sync::Sequencer::enter) or
///   [`Event::enter`](crate::sync::Event::enter),
/// - a [`FairMutexTicket`](crate::sync::FairMutexTicket),
/// - a [`CancellationToken`](crate::sync::CancellationToken),
/// - a [`WatchReceiver`](crate::sync::channel::WatchReceiver).
///
/// # Examples
/// ```
/// use sinew::sync::channel;
/// use std::time::Duration;
///
/// let (numbers, words) = (channel::unbounded::<u32>(), channel::unbounded::<&str>());
/// words.0.send("hello").unwrap();
/// let length = sinew::select! {
///     recv(numbers.1) -> number => number.unwrap() as usize,
///     recv(words.1) -> word => word.unwrap().len(),
///     default(Duration::from_secs(1)) => panic!("nothing came"),
/// };
/// assert_eq!(length, 5);
/// ```
#[macro_export]
macro_rules! select {
    ($($arms:tt)*) => { $crate::__select!(@arms $crate::sync::Patience::Forever, [] $($arms)*) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    (@arms $patience:expr, [$($arms:tt)*]) => {{
        let index = $crate::__select!(@call $patience, $($arms)*);
        $crate::__select!(@chain index, 0, $($arms)*)
    }};
    (@arms $patience:expr, [$($arms:tt)*] ,) => { $crate::__select!(@arms $patience, [$($arms)*]) };
    // Bodies in braces need no comma.
    (@arms $patience:expr, [$($arms:tt)*] $kind:ident($($what:tt)*) -> $result:pat => $body:block
        $kind2:ident $($rest:tt)*) => {
        $crate::__select!(@arms $patience, [$($arms)*] $kind($($what)*) -> $result => $body,
            $kind2 $($rest)*)
    };
    (@arms $patience:expr, [$($arms:tt)*] recv($receiver:expr) -> $result:pat => $body:expr
        $(, $($rest:tt)*)?) => {{
        let mut arm = $receiver.arm();
        $crate::__select!(@arms $patience, [$($arms)* (arm, $result, $body)] $($($rest)*)?)
    }};
    (@arms $patience:expr, [$($arms:tt)*] send($sender:expr, $message:expr) -> $result:pat
        => $body:expr $(, $($rest:tt)*)?) => {{
        let mut arm = $sender.arm($message);
        $crate::__select!(@arms $patience, [$($arms)* (arm, $result, $body)] $($($rest)*)?)
    }};
    (@arms $patience:expr, [$($arms:tt)*] wait($future:expr) -> $result:pat => $body:expr
        $(, $($rest:tt)*)?) => {{
        let mut arm = $future.arm();
        $crate::__select!(@arms $patience, [$($arms)* (arm, $result, $body)] $($($rest)*)?)
    }};
    (@arms $patience:expr, [$($arms:tt)*] join($handle:expr) -> $result:pat => $body:expr
        $(, $($rest:tt)*)?) => {{
        let mut arm = $handle.arm();
        $crate::__select!(@arms $patience, [$($arms)* (arm, $result, $body)] $($($rest)*)?)
    }};
    (@arms $patience:expr, [$($arms:tt)*] after($duration:expr) => $body:block
        $kind:ident $($rest:tt)*) => {
        $crate::__select!(@arms $patience, [$($arms)*] after($duration) => $body, $kind $($rest)*)
    };
    (@arms $patience:expr, [$($arms:tt)*] at($instant:expr) => $body:block
        $kind:ident $($rest:tt)*) => {
        $crate::__select!(@arms $patience, [$($arms)*] at($instant) => $body, $kind $($rest)*)
    };
    (@arms $patience:expr, [$($arms:tt)*] after($duration:expr) => $body:expr
        $(, $($rest:tt)*)?) => {{
        let mut arm = $crate::sync::after($duration);
        $crate::__select!(@arms $patience, [$($arms)* (arm, (), $body)] $($($rest)*)?)
    }};
    (@arms $patience:expr, [$($arms:tt)*] at($instant:expr) => $body:expr
        $(, $($rest:tt)*)?) => {{
        let mut arm = $crate::sync::at($instant);
        $crate::__select!(@arms $patience, [$($arms)* (arm, (), $body)] $($($rest)*)?)
    }};
    (@arms $patience:expr, [$($arms:tt)*] default => $body:expr $(,)?) => {{
        match $crate::__select!(@call $crate::sync::Patience::None, $($arms)*) {
            None => $body,
            index => $crate::__select!(@chain index, 0, $($arms)*),
        }
    }};
    (@arms $patience:expr, [$($arms:tt)*] default($timeout:expr) => $body:expr $(,)?) => {{
        match $crate::__select!(@call $crate::sync::Patience::For($timeout), $($arms)*) {
            None => $body,
            index => $crate::__select!(@chain index, 0, $($arms)*),
        }
    }};
    (@call $patience:expr, $(($arm:ident, $result:pat, $body:expr))*) => {
        $crate::sync::select(&mut [$(&mut $arm),*], $patience)
    };
    (@chain $index:ident, $number:expr, ($arm:ident, $result:pat, $body:expr) $($rest:tt)*) => {
        if $index == ::core::option::Option::Some($number) {
            let $result = $arm.take();
            $body
        } else {
            $crate::__select!(@chain $index, $number + 1, $($rest)*)
        }
    };
    (@chain $index:ident, $number:expr,) => { ::core::unreachable!() };
    (@ $($wrong:tt)*) => {
        ::core::compile_error!("select! takes recv(receiver) -> pattern => expression, \
            send(sender, message) -> pattern => expression, wait(future) -> pattern => expression, \
            join(fiber) -> pattern => expression, after(duration) => expression, \
            at(instant) => expression, and last default => expression or \
            default(duration) => expression")
    };
}
