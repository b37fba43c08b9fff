//! The calls of a controller when a fiber is woken: in the middle of a wait, or at the end of a
//! fiber. They run as on a plain thread.

use crate::abuse::{IN_A_HOOK, INSIDE, assert_in_order};
use crate::kit::{MS, kept, panic_of, simple};
use sinew::manager::{
    self, FiberManager, LoopController, ManagerHandle, Options, Runner, Until, run_in_main_context,
};
use sinew::sync::{Baton, CancellationToken, Condvar, Mutex};
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static HOOK: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// A controller with a hook that runs a closure of the test, once.
struct Hooked;

impl Hooked {
    fn manager() -> FiberManager {
        FiberManager::new(Hooked, Options::default()).unwrap()
    }

    fn set(hook: impl FnOnce() + 'static) {
        HOOK.with(|place| *place.borrow_mut() = Some(Box::new(hook)));
    }

    #[track_caller]
    fn assert_called() {
        assert!(HOOK.with(|hook| hook.borrow().is_none()), "the hook was not called");
    }
}

impl LoopController for Hooked {
    fn attach(&self, _: Runner) {}

    fn schedule(&self) {}

    fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::new(|| {
            let hook = HOOK.with(|hook| hook.borrow_mut().take());
            if let Some(hook) = hook {
                hook();
            }
        })
    }

    fn idle(&self, _: Until) {}
}

/// Calls the hook in the middle of a wait: `Condvar::wait` unlocks the mutex, and so wakes a fiber,
/// after it has registered the waiter.
fn in_the_middle_of_a_wait(hook: impl FnOnce(&'static Condvar, ManagerHandle) + 'static) {
    let (manager, _) = simple();
    let other = Hooked::manager();
    let (mutex, condvar) = (kept(Mutex::new(())), kept(Condvar::new()));
    let go = kept(Baton::new());
    let times = kept(Cell::new(0));
    manager.add_task(|| {
        let mut guard = mutex.lock();
        go.wait();
        condvar.wait(&mut guard);
        times.set(times.get() + 1);
    });
    manager.loop_until_no_ready();
    other.add_task(|| drop(mutex.lock()));
    other.loop_until_no_ready();
    let handle = ManagerHandle::clone(&manager);
    Hooked::set(move || hook(condvar, handle));
    go.post();
    for _ in 0..3 {
        manager.loop_until_no_ready();
        other.loop_until_no_ready();
    }
    Hooked::assert_called();
    assert_eq!((times.get(), manager.active_tasks(), other.active_tasks()), (1, 0, 0));
    assert_in_order(&manager);
}

#[test]
fn a_hook_may_yield_in_the_middle_of_a_wait() {
    let _watch = watch::a_minute();
    in_the_middle_of_a_wait(|condvar, _| {
        condvar.notify_one();
        (0..3).for_each(|_| sinew::yield_now());
    });
}

#[test]
fn a_hook_may_wait_in_the_middle_of_a_wait() {
    let _watch = watch::a_minute();
    in_the_middle_of_a_wait(|condvar, _| {
        condvar.notify_one();
        assert!(!Baton::new().wait_timeout(MS));
        sinew::sleep(MS);
        let waits = Arc::new(Baton::new());
        let posts = waits.clone();
        std::thread::spawn(move || posts.post());
        waits.wait();
    });
}

#[test]
fn a_hook_is_on_no_fiber_and_in_no_manager() {
    let _watch = watch::a_minute();
    in_the_middle_of_a_wait(|condvar, handle| {
        assert!(!manager::on_fiber() && ManagerHandle::current().is_none());
        let text = run_in_main_context(|| {
            condvar.notify_one();
            let refused = panic_of(|| handle.loop_until_no_ready());
            assert!(refused.contains(INSIDE), "{refused}");
            String::from("for the frame of the hook")
        });
        assert_eq!(text, "for the frame of the hook");
        let refused = panic_of(|| handle.add_task_eager(|| ()));
        assert!(refused.contains(IN_A_HOOK), "{refused}");
        handle.add_task(|| ());
        // Other managers are not affected, and run.
        assert_in_order(&simple().0);
    });
}

#[test]
fn a_hook_that_panics_in_the_middle_of_a_wait_is_survived() {
    let _watch = watch::a_minute();
    in_the_middle_of_a_wait(|condvar, _| {
        condvar.notify_one();
        panic!("in the hook, on purpose");
    });
}

#[test]
fn a_hook_inside_of_a_hook_may_wait() {
    let _watch = watch::a_minute();
    in_the_middle_of_a_wait(|condvar, _| {
        let inner = Hooked::manager();
        let baton = kept(Baton::new());
        inner.add_task(|| baton.wait());
        inner.loop_until_no_ready();
        let me = sinew::current();
        let outer = me.id();
        Hooked::set(move || {
            assert_ne!(sinew::current().id(), outer);
            condvar.notify_one();
            me.unpark();
            sinew::sleep(MS);
        });
        baton.post();
        Hooked::assert_called();
        // The unpark was for this flow of control, and not for its caller.
        sinew::park();
        assert_eq!(sinew::current().id(), outer);
        inner.loop_until_no_ready();
        assert!(!inner.has_tasks());
    });
}

/// A hook that waits has a handle of its own. After the hook, this handle names a fiber that has
/// ended.
#[test]
fn the_handle_of_a_hook_has_ended_after_it() {
    let _watch = watch::a_minute();
    let was = kept(RefCell::new(None));
    in_the_middle_of_a_wait(|condvar, _| {
        sinew::sleep(MS);
        *was.borrow_mut() = Some(sinew::current());
        condvar.notify_one();
    });
    let was = was.borrow_mut().take().unwrap();
    was.unpark();
    was.cancel();
    assert_eq!(was.state(), sinew::FiberState::Dead);
    assert_ne!(was.id(), sinew::current().id());
}

/// The fiber-locals of a hook are dropped with the hook, and not in the middle of the wait.
#[test]
fn locals_of_a_hook_are_dropped_with_it() {
    struct Waits(&'static Condvar, &'static Cell<u32>);
    impl Drop for Waits {
        fn drop(&mut self) {
            assert!(!manager::on_fiber());
            self.0.notify_one();
            sinew::yield_now();
            sinew::sleep(MS);
            self.1.set(self.1.get() + 1);
        }
    }
    sinew::fiber_local!(static LOCAL: RefCell<Option<Waits>> = RefCell::new(None));
    let _watch = watch::a_minute();
    let dropped = kept(Cell::new(0));
    in_the_middle_of_a_wait(|condvar, _| {
        LOCAL.with(|local| *local.borrow_mut() = Some(Waits(condvar, dropped)))
    });
    assert_eq!(dropped.get(), 1);
}

/// Calls the hook when a fiber has ended and its joiner has taken the result: the control block is
/// vacant.
fn when_a_fiber_is_gone(hook: impl FnOnce(ManagerHandle) + 'static) {
    let (manager, _) = simple();
    let other = Hooked::manager();
    let go = kept(Baton::new());
    let child = kept(RefCell::new(None));
    manager.add_task(|| *child.borrow_mut() = Some(sinew::spawn_local(|| go.wait())));
    manager.loop_until_no_ready();
    let child = child.borrow_mut().take().unwrap();
    other.add_task(move || child.join().unwrap());
    other.loop_until_no_ready();
    let (handle, joins) = (ManagerHandle::clone(&manager), ManagerHandle::clone(&other));
    Hooked::set(move || {
        joins.loop_until_no_ready();
        assert!(!joins.has_tasks());
        hook(handle);
    });
    go.post();
    manager.loop_until_no_ready();
    Hooked::assert_called();
    manager.loop_until_no_ready();
    assert_in_order(&manager);
}

#[test]
fn no_fiber_is_active_in_a_hook() {
    let _watch = watch::a_minute();
    in_the_middle_of_a_wait(|condvar, handle| {
        assert!(!handle.has_active_fiber() && handle.active_fiber().is_none());
        condvar.notify_one();
    });
    let ran = kept(Cell::new(0));
    when_a_fiber_is_gone(|handle| {
        assert!(!handle.has_active_fiber());
        assert!(handle.active_fiber().is_none() && handle.current_fiber().is_none());
        // Enough tasks to use every block that seems vacant.
        for _ in 0..3000 {
            handle.add_task(|| {
                sinew::yield_now();
                ran.set(ran.get() + 1);
            });
        }
    });
    assert_eq!(ran.get(), 3000);
}

/// The report of a panic comes at the end of a fiber, and its hook runs as on a plain thread too.
#[test]
fn the_panic_of_a_hook_is_reported_where_no_fiber_is() {
    child("hooks::the_panic_of_a_hook_is_reported_where_no_fiber_is", || {
        static REPORTED: AtomicUsize = AtomicUsize::new(0);
        let _watch = watch::a_minute();
        sinew::set_report_hook(|text| {
            if text.contains("the scheduling of a manager panicked") {
                assert!(!manager::on_fiber());
                drop(sinew::current());
                sinew::yield_now();
                REPORTED.fetch_add(1, Ordering::SeqCst);
            }
        });
        when_a_fiber_is_gone(|_| panic!("in the hook, on purpose"));
        assert_eq!(REPORTED.load(Ordering::SeqCst), 1);
    })
    .assert_success();
}

#[test]
fn a_hook_may_yield_at_the_end_of_a_fiber() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let other = Hooked::manager();
    let go = kept(Baton::new());
    let child = kept(RefCell::new(None));
    let joined = kept(Cell::new(false));
    manager.add_task(|| *child.borrow_mut() = Some(sinew::spawn_local(|| go.wait())));
    manager.loop_until_no_ready();
    let child = child.borrow_mut().take().unwrap();
    other.add_task(move || {
        child.join().unwrap();
        joined.set(true);
    });
    other.loop_until_no_ready();
    Hooked::set(|| {
        sinew::yield_now();
        sinew::sleep(MS);
    });
    let handle = ManagerHandle::clone(&manager);
    manager.add_task(move || {
        go.post();
        for _ in 0..3 {
            handle.add_task(sinew::yield_now);
        }
    });
    manager.loop_until_no_ready();
    other.loop_until_no_ready();
    assert!(joined.get());
    Hooked::assert_called();
    manager.loop_until_no_ready();
    assert_in_order(&manager);
}

#[test]
fn a_hook_may_cancel_the_token_that_has_called_it() {
    let _watch = watch::a_minute();
    let other = Hooked::manager();
    let token = CancellationToken::new();
    let waits = token.clone();
    other.add_task(move || waits.wait());
    other.loop_until_no_ready();
    let again = token.clone();
    Hooked::set(move || again.cancel());
    token.cancel();
    Hooked::assert_called();
    other.loop_until_no_ready();
    assert!(!other.has_tasks());
}
