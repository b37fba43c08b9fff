//! Waiting for a change: no waiter misses it.

use super::bout::{Bout, Worker};
use sinew::sync::{Baton, Condvar, Futex, LazyLock, Mutex, Once, OnceLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Tokens {
    /// The number of tokens, and whether there will be no more.
    state: Mutex<(u64, bool)>,
    changed: Condvar,
    made: AtomicU64,
    taken: AtomicU64,
}

pub(super) fn condvar(bout: &mut Bout) {
    if bout.seed.below(2) == 0 {
        condvar_for_all(bout);
    } else {
        let (state, changed) = (Mutex::new(0_u64), Condvar::new());
        let shared = Arc::new((state, changed));
        let theirs = shared.clone();
        let take = move |patience: Option<Duration>| {
            let (state, changed) = &*theirs;
            let mut guard = state.lock();
            match patience {
                None => changed.wait_while(&mut guard, |left| *left == 0),
                Some(time) => _ = changed.wait_while_timeout(&mut guard, |left| *left == 0, time),
            }
            let left = guard.checked_sub(1);
            *guard = left.unwrap_or(0);
            left.is_some()
        };
        let give = move || {
            *shared.0.lock() += 1;
            shared.1.notify_one();
        };
        as_many_as_stay(bout, take, give);
    }
}

/// Some workers wait for a token each, and exactly as many tokens are made. Other workers wait as
/// well, and leave at the same time. A leaver that was woken passes its token on. So no worker is
/// left waiting, unless a leaver takes a wake along.
fn as_many_as_stay(
    bout: &mut Bout,
    take: impl Fn(Option<Duration>) -> bool + Send + Sync + 'static,
    give: impl Fn() + Send + Sync + 'static,
) {
    let (take, give) = (Arc::new(take), Arc::new(give));
    let (stay, leave) = (1 + bout.seed.below(6), 1 + bout.seed.below(6));
    let began = Arc::new(AtomicUsize::new(0));
    let (taking, giving, begins) = (take.clone(), give.clone(), began.clone());
    let leavers = bout.start_doomed("leaves", leave, move |worker| {
        let patience = worker.once_in(2).then(|| worker.patience());
        begins.fetch_add(1, Ordering::SeqCst);
        if taking(patience) {
            // The worker may be cancelled by now.
            sinew::masked(&*giving);
        }
        worker.did();
    });
    let begins = began.clone();
    bout.start_safe("stays", stay, move |worker| {
        begins.fetch_add(1, Ordering::SeqCst);
        while !take(None) {}
        worker.did();
    });
    // Most of the time all workers wait when the tokens come.
    if bout.seed.below(4) > 0 {
        bout.until(|| began.load(Ordering::SeqCst) == stay + leave);
    }
    let left = AtomicUsize::new(stay);
    let early = bout.seed.below(2) == 0;
    if early {
        bout.cancel(leavers);
    }
    bout.start_safe("makes tokens", 1 + stay / 3, move |worker| {
        let one = |left: usize| left.checked_sub(1);
        while left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one).is_ok() {
            give();
            worker.did();
            worker.pause();
        }
    });
    if !early {
        bout.cancel(leavers);
    }
    bout.all_ended();
}

/// Each new token wakes one waiter, so no token is left while a worker waits.
fn condvar_for_all(bout: &mut Bout) {
    let tokens = Arc::new(Tokens::default());
    let (theirs, count) = (tokens.clone(), bout.some());
    bout.start("takes tokens", count, move |worker| while take_token(worker, &theirs) {});
    let (theirs, count) = (tokens.clone(), bout.some());
    let makers = bout.start("makes tokens", count, move |worker| {
        let Tokens { state, changed, made, .. } = &*theirs;
        for _ in 0..worker.steps() {
            let count = 1 + worker.below(3) as u64;
            let early = worker.once_in(2);
            let notify = |worker: &mut Worker| {
                if worker.once_in(4) {
                    changed.notify_all();
                } else {
                    (0..count).for_each(|_| _ = changed.notify_one());
                }
            };
            let mut guard = state.lock();
            guard.0 += count;
            made.fetch_add(count, Ordering::Relaxed);
            if early {
                notify(worker);
            }
            drop(guard);
            if !early {
                notify(worker);
            }
            worker.did();
            worker.pause();
        }
    });
    bout.ended(makers);
    // Without another notification.
    bout.until(|| tokens.state.lock().0 == 0);
    tokens.state.lock().1 = true;
    tokens.changed.notify_all();
    bout.all_ended();
    assert_eq!(tokens.made.load(Ordering::Relaxed), tokens.taken.load(Ordering::Relaxed));
    assert_eq!(tokens.changed.notify_all(), 0, "somebody still waits");
}

/// Takes a token, if one will come. Never pinned: the lock is taken again without a timeout.
fn take_token(worker: &mut Worker, tokens: &Tokens) -> bool {
    let Tokens { state, changed, taken, .. } = tokens;
    let none = |state: &mut (u64, bool)| state.0 == 0 && !state.1;
    let mut guard = state.lock();
    match worker.below(if worker.has_timeouts() { 7 } else { 3 }) {
        0 => changed.wait_while(&mut guard, none),
        1 => sinew::masked(|| changed.wait_while(&mut guard, none)),
        2 => {
            while none(&mut guard) {
                changed.wait(&mut guard);
            }
        }
        3 => _ = changed.wait_while_timeout(&mut guard, none, worker.patience()),
        4 => _ = sinew::timeout(worker.patience(), || changed.wait_while(&mut guard, none)),
        // Waits without checking first: it checks after any wake.
        5 => _ = changed.wait_timeout(&mut guard, worker.patience()),
        _ => _ = changed.wait_deadline(&mut guard, Instant::now() + worker.patience()),
    }
    let over = *guard == (0, true);
    if guard.0 > 0 {
        guard.0 -= 1;
        taken.fetch_add(1, Ordering::Relaxed);
    }
    drop(guard);
    worker.did();
    worker.pause();
    !over
}

pub(super) fn futex(bout: &mut Bout) {
    match bout.seed.below(3) {
        0 => futex_for_all(bout),
        1 => futex_for_one(bout),
        _ => {
            let shared = Arc::new((AtomicU64::new(0), Futex::new()));
            let theirs = shared.clone();
            let take = move |patience: Option<Duration>| {
                let (left, posted) = &*theirs;
                let one = |left: u64| left.checked_sub(1);
                let mut patience = patience;
                loop {
                    let token = posted.get();
                    if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one).is_ok() {
                        return true;
                    }
                    match patience {
                        None => posted.wait(token + 1),
                        // Check once more: the wake may have come at the last moment.
                        Some(Duration::ZERO) => return false,
                        Some(time) => {
                            posted.wait_timeout(token + 1, time);
                            patience = Some(Duration::ZERO);
                        }
                    }
                }
            };
            let give = move || {
                shared.0.fetch_add(1, Ordering::SeqCst);
                shared.1.post_one();
            };
            as_many_as_stay(bout, take, give);
        }
    }
}

/// A waiter for a level goes on when the level was reached.
fn futex_for_all(bout: &mut Bout) {
    let shared = Arc::new((Futex::new(), AtomicU64::new(0)));
    let posters = 1 + bout.seed.below(3);
    let most = (posters * bout.steps()) as u64;
    let (theirs, count) = (shared.clone(), bout.some());
    bout.start("waits for a level", count, move |worker| {
        let (futex, level) = &*theirs;
        for _ in 0..worker.steps() {
            let wanted = worker.below(most as usize + 1) as u64;
            loop {
                let token = futex.get();
                if level.load(Ordering::Relaxed) >= wanted {
                    break;
                }
                let reached = worker.attempt(
                    || None,
                    |patience| futex.wait_timeout(token + 1, patience).then_some(()),
                    || futex.wait(token + 1),
                );
                assert!(reached.is_none() || futex.get() > token, "woken before the post");
                worker.did();
                worker.pause();
            }
        }
    });
    let (theirs, count) = (shared.clone(), posters);
    let posts = Arc::new(AtomicU64::new(0));
    let posted = posts.clone();
    bout.start("posts", count, move |worker| {
        let (futex, level) = &*theirs;
        for _ in 0..worker.steps() {
            level.fetch_add(1, Ordering::Relaxed);
            posted.fetch_add(1, Ordering::Relaxed);
            futex.post();
            worker.did();
            worker.pause();
        }
    });
    bout.all_ended();
    assert_eq!(shared.0.get(), posts.load(Ordering::Relaxed));
}

/// Each post wakes one waiter, so no permit is left while a worker waits.
fn futex_for_one(bout: &mut Bout) {
    #[derive(Default)]
    struct Permits {
        posted: Futex,
        left: AtomicU64,
        made: AtomicU64,
        taken: AtomicU64,
        closed: AtomicBool,
    }
    let permits = Arc::new(Permits::default());
    let (theirs, count) = (permits.clone(), bout.some());
    bout.start("takes permits", count, move |worker| {
        let Permits { posted, left, taken, closed, .. } = &*theirs;
        loop {
            let token = posted.get();
            let over = closed.load(Ordering::SeqCst);
            let one = |left: u64| left.checked_sub(1);
            if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one).is_ok() {
                taken.fetch_add(1, Ordering::Relaxed);
                worker.did();
                worker.pause();
            } else if over {
                return;
            } else {
                worker.attempt(
                    || None,
                    |patience| posted.wait_timeout(token + 1, patience).then_some(()),
                    || posted.wait(token + 1),
                );
            }
        }
    });
    let (theirs, count) = (permits.clone(), bout.some());
    let makers = bout.start("makes permits", count, move |worker| {
        for _ in 0..worker.steps() {
            theirs.made.fetch_add(1, Ordering::Relaxed);
            theirs.left.fetch_add(1, Ordering::SeqCst);
            theirs.posted.post_one();
            worker.did();
            worker.pause();
        }
    });
    bout.ended(makers);
    bout.until(|| permits.left.load(Ordering::SeqCst) == 0);
    permits.closed.store(true, Ordering::SeqCst);
    permits.posted.post();
    bout.all_ended();
    assert_eq!(permits.made.load(Ordering::Relaxed), permits.taken.load(Ordering::Relaxed));
}

/// A posted baton lets its waiter pass, and the waiter sees what happened before the post. Each
/// baton has one waiter, and up to two posters.
pub(super) fn baton(bout: &mut Bout) {
    type Batons = Vec<(Baton, AtomicUsize)>;
    let batons: Batons = (0..bout.steps()).map(|_| Default::default()).collect();
    let (batons, next) = (Arc::new(batons), AtomicUsize::new(0));
    let (theirs, count) = (batons.clone(), bout.some());
    bout.start("waits for batons", count, move |worker| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((baton, value)) = theirs.get(index) else { break };
            let posted = worker.attempt(
                || baton.is_posted().then_some(()),
                |patience| baton.wait_timeout(patience).then_some(()),
                || baton.wait(),
            );
            if posted.is_some() {
                assert_eq!(value.load(Ordering::Relaxed), index + 1, "seen before it was posted");
            }
            worker.did();
            worker.pause();
        }
    });
    let theirs = batons.clone();
    bout.start("posts batons", 2, move |worker| {
        for (index, (baton, value)) in theirs.iter().enumerate() {
            worker.pause();
            value.store(index + 1, Ordering::Relaxed);
            baton.post();
            worker.did();
        }
    });
    bout.all_ended();
    assert!(batons.iter().all(|(baton, _)| baton.is_posted()));
}

struct Cell {
    once: Once,
    runs: AtomicUsize,
    inside: AtomicUsize,
    value: OnceLock<usize>,
    made: AtomicUsize,
    lazy: LazyLock<usize, Box<dyn FnOnce() -> usize + Send>>,
}

impl Cell {
    fn new() -> Cell {
        let runs = AtomicUsize::new(0);
        let make = move || {
            sinew::yield_now();
            runs.fetch_add(1, Ordering::Relaxed) + 1
        };
        Cell {
            once: Once::new(),
            runs: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            value: OnceLock::new(),
            made: AtomicUsize::new(0),
            lazy: LazyLock::new(Box::new(make)),
        }
    }
}

/// A once runs once, even if workers were cancelled in it before.
pub(super) fn once(bout: &mut Bout) {
    let cells: Vec<_> = (0..bout.steps()).map(|_| Cell::new()).collect();
    let cells = Arc::new(cells);
    let (theirs, count) = (cells.clone(), bout.some());
    bout.start("asks for what is done once", count, move |worker| {
        for cell in theirs.iter() {
            let (timeouts, patience) = (worker.has_timeouts(), worker.patience());
            if timeouts && worker.once_in(3) {
                let _ = sinew::timeout(patience, || ask(worker, cell));
            } else {
                ask(worker, cell);
            }
            worker.did();
            worker.pause();
        }
    });
    bout.all_ended();
    for cell in cells.iter() {
        assert!(cell.runs.load(Ordering::SeqCst) <= 1);
        assert_eq!(cell.made.load(Ordering::SeqCst), usize::from(cell.value.get().is_some()));
        // No cancelled worker still holds the once.
        cell.once.call_once(|| ());
        cell.value.get_or_init(|| 1);
    }
}

fn ask(worker: &mut Worker, cell: &Cell) {
    let Cell { once, runs, inside, value, made, lazy } = cell;
    match worker.below(4) {
        0 => {
            once.call_once(|| {
                let _inside = super::bout::Inside::enter(inside, 0);
                worker.pause();
                runs.fetch_add(1, Ordering::SeqCst);
            });
            assert_eq!(runs.load(Ordering::SeqCst), 1, "done once when it was asked for");
        }
        1 => {
            let make = || {
                worker.pause();
                if worker.once_in(3) {
                    return Err(());
                }
                made.fetch_add(1, Ordering::SeqCst);
                Ok(1)
            };
            assert_ne!(value.get_or_try_init(make), Ok(&2));
        }
        2 => {
            let set = value.set(1).is_ok();
            made.fetch_add(usize::from(set), Ordering::SeqCst);
            assert_eq!(value.get(), Some(&1));
        }
        _ => assert_eq!(**lazy, 1, "made once"),
    }
}
