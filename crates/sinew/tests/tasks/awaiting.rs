//! Results of batches as `Future`s.

use crate::message_of;
use sinew::tasks::{AtomicBatchDispatcher, BatchDispatcher};
use sinew_testkit::watch;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};

#[test]
fn a_fiber_awaits_results() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        let doubler = BatchDispatcher::new(|batch: Vec<u32>| {
            sinew::yield_now();
            batch.into_iter().map(|n| 2 * n).collect::<Vec<_>>()
        });
        let (first, second) = (doubler.add(1), doubler.add(2));
        let sum = sinew::block_on(async { first.await.unwrap() + second.await.unwrap() });
        assert_eq!(sum, 6);
    });
}

#[test]
fn a_thread_that_awaits_is_woken_by_the_last_token() {
    let _watch = watch::a_minute();
    for _ in 0..200 {
        let dispatcher = AtomicBatchDispatcher::new(|batch: Vec<u32>| batch);
        let (token, future) = (dispatcher.token(), dispatcher.token().dispatch(1));
        dispatcher.commit();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut future = pin!(future);
            sinew::block_on(std::future::poll_fn(|context| {
                sender.send(()).unwrap();
                future.as_mut().poll(context)
            }))
        });
        // While the thread polls for the first time.
        receiver.recv().unwrap();
        assert_eq!(token.dispatch(2).get(), Ok(2));
        assert_eq!(thread.join().unwrap(), Ok(1));
    }
}

/// Counts how often it was woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_last_waker_is_woken_once() {
    let _watch = watch::a_minute();
    let dispatcher = AtomicBatchDispatcher::new(|batch: Vec<u32>| batch);
    let mut future = pin!(dispatcher.token().dispatch(1));
    let wakes = [(); 2].map(|()| Arc::new(Wakes::default()));
    for wakes in &wakes {
        let waker = Waker::from(wakes.clone());
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    dispatcher.commit();
    assert_eq!(wakes.map(|wakes| Arc::into_inner(wakes).unwrap().0.into_inner()), [0, 1]);
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(Ok(1)));
    let message = message_of(|| future.as_mut().poll(&mut context));
    assert!(message.contains("an earlier poll has taken the result"), "{message}");
}
