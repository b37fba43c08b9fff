//! crossbeam's channels, on threads.

use super::threads;
use crate::load::{Progress, ROOM, Remote, TALKERS};
use crate::measure::{Lap, Timed};
use crossbeam_channel::{Receiver, TryRecvError, bounded};
use std::hint::{black_box, spin_loop};
use std::thread;

pub(crate) const SPINNING: &str = "crossbeam-channel 0.5.17, 2 threads that spin on try_recv";
pub(crate) const BLOCKING: &str = "crossbeam-channel 0.5.17, 2 threads, recv";
pub(crate) const EIGHT: &str = "crossbeam-channel 0.5.17, 8 threads";

pub(crate) const TASKS: &str =
    "crossbeam-channel 0.5.17, a thread receives and runs the tasks itself";

/// Receives a message; returns `None` when all senders are gone.
type Receive = fn(&Receiver<u64>) -> Option<u64>;

fn spin(receiver: &Receiver<u64>) -> Option<u64> {
    loop {
        match receiver.try_recv() {
            Ok(message) => return Some(message),
            Err(TryRecvError::Empty) => spin_loop(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}

/// Sends a message to another thread and back; the threads spin and never sleep.
pub(crate) fn pingpong_spinning() -> Timed {
    pingpong(spin)
}

/// Sends a message to another thread and back, with a `recv` that spins for a while and then
/// sleeps.
pub(crate) fn pingpong_blocking() -> Timed {
    pingpong(|receiver| receiver.recv().ok())
}

fn pingpong(receive: Receive) -> Timed {
    Box::new(move |count| {
        let ((there, to), (from, back)) = (bounded(1), bounded(1));
        thread::scope(|scope| {
            scope.spawn(move || {
                from.send(0).expect("it is waited for");
                while let Some(message) = receive(&to) {
                    from.send(message).expect("it is received");
                }
            });
            // The other thread has begun after this: starting it does not count.
            receive(&back).expect("it comes first");
            let lap = Lap::run(count, || {
                for number in 0..count {
                    there.send(number).expect("it is received");
                    black_box(receive(&back).expect("it comes back"));
                }
            });
            drop(there);
            lap
        })
    })
}

/// Lets half of the threads send and the others receive over one bounded channel; gives the time
/// for each message.
pub(crate) fn channel_mpmc() -> Timed {
    Box::new(|count| {
        let each = count.div_ceil(TALKERS / 2);
        let (sender, receiver) = bounded(ROOM);
        threads::crowd(TALKERS, each * TALKERS / 2, |number| {
            for message in 0..each {
                if number % 2 == 0 {
                    sender.send(message).expect("it is received");
                } else {
                    black_box(receiver.recv().expect("it was sent"));
                }
            }
        })
    })
}

/// Lets another thread send tasks to a thread that does nothing but run them.
pub(crate) fn remote(outstanding: u64) -> Timed {
    let progress = Progress::new();
    Box::new(move |count| {
        let (sender, receiver) = bounded(outstanding as usize);
        Remote { count, outstanding, progress }.run(
            move || sender.send(progress).expect("it is received"),
            || (),
            || receiver.iter().for_each(Progress::advance),
        )
    })
}
