//! tokio's tasks that stay on one thread, in a `LocalSet` or a `LocalRuntime`.

use crate::load::{Progress, Remote, TASKS, counter};
use crate::measure::{Lap, Timed};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime, Runtime};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{LocalSet, spawn_local};

pub(crate) const SET: &str = "1.54.1, LocalSet in a current_thread runtime";
pub(crate) const SET_NOTIFY: &str = "1.54.1, LocalSet, Notify";
pub(crate) const SET_BY_HAND: &str = "1.54.1, LocalSet, a Cell and a Waker";
pub(crate) const SET_REMOTE: &str =
    "1.54.1, LocalSet, mpsc unbounded to a task that spawns the others";
pub(crate) const SET_CALL: &str = "1.54.1, LocalSet, another task is asked, a Cell and a Waker";
pub(crate) const LOCAL: &str = "1.54.1, LocalRuntime";
pub(crate) const LOCAL_NOTIFY: &str = "1.54.1, LocalRuntime, Notify";
pub(crate) const LOCAL_REMOTE: &str = "1.54.1, LocalRuntime, Handle::spawn";
pub(crate) const LOCAL_CALL: &str =
    "1.54.1, LocalRuntime, another task is asked, a Cell and a Waker";
pub(crate) const RECEIVER: &str =
    "1.54.1, LocalSet, mpsc unbounded to a task that does the work itself";

/// The most messages that one call receives.
const SOME: usize = 64;

/// A place in which `spawn_local` works.
pub(crate) enum Place {
    Set(Runtime, LocalSet),
    Local(LocalRuntime),
}

impl Place {
    pub(crate) fn set() -> Place {
        let runtime = Builder::new_current_thread().build().expect("a runtime can be made");
        Place::Set(runtime, LocalSet::new())
    }

    pub(crate) fn local() -> Place {
        let runtime = Builder::new_current_thread().build_local(LocalOptions::default());
        Place::Local(runtime.expect("a runtime can be made"))
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        match self {
            Place::Set(runtime, set) => set.block_on(runtime, future),
            Place::Local(runtime) => runtime.block_on(future),
        }
    }
}

/// Returns work that a task times: a task spawns faster than the future of `block_on`.
fn timed<F: Future<Output = Lap> + 'static>(
    place: Place,
    lap: impl Fn(u64) -> F + 'static,
) -> Timed {
    Box::new(move |count| {
        let driver = lap(count);
        place.block_on(async { spawn_local(driver).await.expect("it does not panic") })
    })
}

/// Spawns `batch` empty tasks, waits for the last one, and repeats that. Tasks run in order.
fn tasks(place: Place, batch: u64) -> Timed {
    let done = counter();
    timed(place, move |count| async move {
        let batches = count.div_ceil(batch);
        done.set(0);
        let start = Instant::now();
        for _ in 0..batches {
            for _ in 1..batch {
                drop(spawn_local(async { done.set(done.get() + 1) }));
            }
            let last = spawn_local(async { done.set(done.get() + 1) });
            last.await.expect("it does not panic");
        }
        let lap = Lap::new(start.elapsed(), batches * batch);
        assert_eq!(done.get(), batches * batch);
        lap
    })
}

pub(crate) fn task(place: Place) -> Timed {
    tasks(place, TASKS)
}

pub(crate) fn task_one(place: Place) -> Timed {
    tasks(place, 1)
}

/// A signal between tasks of one thread.
pub(crate) trait Signal: Default + 'static {
    fn post(&self);

    /// Waits for the signal and clears it.
    fn wait(&self) -> impl Future<Output = ()>;
}

impl Signal for Notify {
    fn post(&self) {
        self.notify_one();
    }

    async fn wait(&self) {
        self.notified().await;
    }
}

/// A signal by hand, without atomics, for one thread only.
#[derive(Default)]
pub(crate) struct ByHand {
    set: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Signal for ByHand {
    fn post(&self) {
        self.set.set(true);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    async fn wait(&self) {
        poll_fn(|context| {
            if self.set.take() {
                return Poll::Ready(());
            }
            // The executor gives a task one waker for life, so the task clones it once.
            let mut waker = self.waker.borrow_mut();
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

/// Lets two tasks signal each other.
pub(crate) fn baton<S: Signal>(place: Place) -> Timed {
    let done = counter();
    timed(place, move |rounds| async move {
        let there_and_back = Rc::new((S::default(), S::default()));
        let theirs = there_and_back.clone();
        done.set(0);
        let start = Instant::now();
        let pong = spawn_local(async move {
            let (there, back) = &*theirs;
            for _ in 0..rounds {
                there.wait().await;
                done.set(done.get() + 1);
                back.post();
            }
        });
        let ping = spawn_local(async move {
            let (there, back) = &*there_and_back;
            for _ in 0..rounds {
                there.post();
                back.wait().await;
            }
        });
        pong.await.expect("it does not panic");
        ping.await.expect("it does not panic");
        let lap = Lap::new(start.elapsed(), rounds);
        assert_eq!(done.get(), rounds);
        lap
    })
}

/// Lets another thread send tasks, which a task of the `LocalSet` receives and spawns: no part of a
/// `LocalSet` may leave its thread.
pub(crate) fn remote_set(outstanding: u64) -> Timed {
    let (place, progress) = (Place::set(), Progress::new());
    Box::new(move |count| {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        Remote { count, outstanding, progress }.run(
            move || sender.send(progress).expect("it is received"),
            || (),
            || {
                place.block_on(async {
                    let receive = spawn_local(async move {
                        let mut some: Vec<&Progress> = Vec::with_capacity(SOME);
                        let mut last = None;
                        while receiver.recv_many(&mut some, SOME).await > 0 {
                            for progress in some.drain(..) {
                                last = Some(spawn_local(async { progress.advance() }));
                            }
                        }
                        last
                    });
                    let last = receive.await.expect("it does not panic");
                    last.expect("there were tasks").await.expect("it does not panic");
                });
            },
        )
    })
}

/// Lets another thread send work to a task that does all of it. If one piece of work waited, all
/// others would wait too.
pub(crate) fn remote_receiver(outstanding: u64) -> Timed {
    let (place, progress) = (Place::set(), Progress::new());
    Box::new(move |count| {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        Remote { count, outstanding, progress }.run(
            move || sender.send(progress).expect("it is received"),
            || (),
            || {
                place.block_on(async {
                    let receive = spawn_local(async move {
                        let mut some: Vec<&Progress> = Vec::with_capacity(SOME);
                        while receiver.recv_many(&mut some, SOME).await > 0 {
                            some.drain(..).for_each(Progress::advance);
                        }
                    });
                    receive.await.expect("it does not panic");
                });
            },
        )
    })
}

/// Lets another thread spawn tasks, which have to be `Send`.
pub(crate) fn remote_local(outstanding: u64) -> Timed {
    let (place, progress) = (Place::local(), Progress::new());
    Box::new(move |count| {
        let Place::Local(runtime) = &place else { unreachable!("the place is a runtime") };
        let (handle, (end, ended)) = (runtime.handle().clone(), oneshot::channel());
        let last = handle.clone();
        Remote { count, outstanding, progress }.run(
            move || drop(handle.spawn(async { progress.advance() })),
            move || drop(last.spawn(async { end.send(()).expect("it is waited for") })),
            || place.block_on(async { ended.await.expect("it is sent") }),
        )
    })
}
