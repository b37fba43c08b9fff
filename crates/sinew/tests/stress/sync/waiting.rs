//! Parking and joining.

use super::bout::{Bout, Shelf, Worker};
use sinew::Fiber;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[derive(Default)]
struct Mailbox {
    letters: AtomicU64,
    reader: Shelf<Option<Fiber>>,
    is_read: AtomicBool,
}

impl Mailbox {
    fn wake(&self) {
        if let Some(reader) = self.reader.with(|reader| reader.clone()) {
            reader.unpark();
        }
    }

    fn set_reader(&self, reader: Option<Fiber>) {
        self.reader.with(|before| *before = reader);
    }
}

/// The right to read a box.
struct Reads<'a>(&'a Mailbox);

impl Drop for Reads<'_> {
    fn drop(&mut self) {
        self.0.set_reader(None);
        self.0.is_read.store(false, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct Post {
    boxes: Vec<Mailbox>,
    sent: AtomicU64,
    read: AtomicU64,
    closed: AtomicBool,
}

/// A fiber that is unparked after a letter was put in its box sees the letter.
pub(super) fn park(bout: &mut Bout) {
    let count = bout.some();
    let boxes = (0..count).map(|_| Mailbox::default()).collect();
    let post = Arc::new(Post { boxes, ..Post::default() });
    let theirs = post.clone();
    bout.start("reads letters", count, move |worker| {
        let free = |mailbox: &&Mailbox| !mailbox.is_read.swap(true, Ordering::SeqCst);
        // There are as many boxes as workers; a cancelled worker has given up its own.
        let mailbox = theirs.boxes.iter().find(free).expect("a box for everybody");
        let _reads = Reads(mailbox);
        mailbox.set_reader(Some(sinew::current()));
        loop {
            let closed = theirs.closed.load(Ordering::SeqCst);
            let one = |letters: u64| letters.checked_sub(1);
            if mailbox.letters.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one).is_ok() {
                theirs.read.fetch_add(1, Ordering::SeqCst);
                worker.did();
                worker.pause();
            } else if closed {
                return;
            } else {
                worker.attempt(
                    || Some(()),
                    |patience| {
                        sinew::park_timeout(patience);
                        Some(())
                    },
                    sinew::park,
                );
            }
        }
    });
    let (theirs, some) = (post.clone(), bout.some());
    let writers = bout.start("writes letters", some, move |worker| {
        for _ in 0..worker.steps() {
            let mailbox = &theirs.boxes[worker.below(theirs.boxes.len())];
            theirs.sent.fetch_add(1, Ordering::SeqCst);
            mailbox.letters.fetch_add(1, Ordering::SeqCst);
            mailbox.wake();
            worker.did();
            worker.pause();
        }
    });
    bout.ended(writers);
    let left = || post.boxes.iter().map(|mailbox| mailbox.letters.load(Ordering::SeqCst)).sum();
    bout.until(|| 0_u64 == left());
    post.closed.store(true, Ordering::SeqCst);
    post.boxes.iter().for_each(Mailbox::wake);
    bout.all_ended();
    assert_eq!(post.sent.load(Ordering::SeqCst), post.read.load(Ordering::SeqCst));
}

/// Counts a closure that exists.
struct Exists(Arc<AtomicUsize>);

impl Exists {
    fn new(count: &Arc<AtomicUsize>) -> Exists {
        count.fetch_add(1, Ordering::SeqCst);
        Exists(count.clone())
    }
}

impl Drop for Exists {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A joiner gets the result, or learns of the cancellation. A joiner that is cancelled lets go of
/// the fiber.
pub(super) fn join(bout: &mut Bout) {
    let exist = Arc::new(AtomicUsize::new(0));
    let (theirs, count) = (exist.clone(), bout.some());
    bout.start("joins", count, move |worker| {
        for _ in 0..worker.steps() {
            join_once(worker, &theirs);
            worker.did();
            worker.pause();
        }
    });
    bout.all_ended();
    bout.until(|| exist.load(Ordering::SeqCst) == 0);
}

fn join_once(worker: &mut Worker, exist: &Arc<AtomicUsize>) {
    let number = worker.below(1 << 20);
    let (mut seed, exists) = (worker.fork(), Exists::new(exist));
    let child = worker.spawn(move || {
        let result = Exists(exists.0.clone());
        exists.0.fetch_add(1, Ordering::SeqCst);
        for _ in 0..seed.below(4) {
            match seed.below(4) {
                0 => sinew::sleep(std::time::Duration::from_micros(seed.below(100) as u64)),
                _ => sinew::yield_now(),
            }
        }
        drop(exists);
        (number, result)
    });
    worker.pause();
    let cancelled = worker.once_in(4);
    if cancelled {
        child.cancel();
    }
    let fiber = child.fiber();
    let mut child = Some(child);
    let joined = match worker.below(8) {
        0 => return,
        1 => {
            fiber.wait_finished();
            assert!(!fiber.is_alive());
            child.take().map(|child| child.join())
        }
        2 => {
            // Another fiber waits for the same end.
            let other = worker.spawn(move || fiber.wait_finished());
            let result = child.take().map(|child| child.join());
            other.join().expect("nobody cancels it");
            result
        }
        _ => {
            let child = std::cell::Cell::new(child);
            let take = || child.take().expect("joined in one way");
            let joined = worker.attempt(
                || None,
                |patience| match take().join_timeout(patience) {
                    Ok(result) => Some(result),
                    Err(back) => {
                        child.set(Some(back));
                        None
                    }
                },
                || take().join(),
            );
            joined.or_else(|| child.take().map(|child| child.join()))
        }
    };
    match joined {
        Some(Ok((result, _))) => assert_eq!(result, number, "the result of another fiber"),
        Some(Err(payload)) => assert!(cancelled && sinew::is_cancel(&*payload)),
        None => {}
    }
}
