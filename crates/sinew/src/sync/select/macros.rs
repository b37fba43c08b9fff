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
///     default => expression,             // if none can be done at once
///     default(duration) => expression,   // if none can be done in time
/// }
/// ```
///
/// If several operations are possible, each has the same chance. An arm borrows its object until
/// one arm is chosen, so a channel that is made by an expression has to be bound by a `let` before.
/// Each arm has the result of its method, such as [`recv`](crate::sync::channel::Receiver::recv),
/// [`send`](crate::sync::channel::Sender::send) or [`join`](crate::JoinHandle::join). If a channel
/// is disconnected, its arm is possible at once, and results in an error. Messages and times are
/// computed before the wait. A message that was not sent is dropped.
///
/// A pattern has to match every result. To keep a message that was not sent, create its arm first:
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
/// [`BroadcastReceiver`](crate::sync::channel::BroadcastReceiver). `wait` takes objects without
/// messages:
///
/// - a [`FiberFuture`](crate::sync::FiberFuture),
/// - a [`Semaphore`](crate::sync::Semaphore::arm), for one permit,
/// - a place in an order: a [`SequencerTurn`](crate::sync::SequencerTurn), which an
///   [`Event`](crate::sync::Event::enter) gives as well, or a
///   [`FairMutexTicket`](crate::sync::FairMutexTicket),
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
