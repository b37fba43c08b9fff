//! Cases that no library that interleaves flows of control on one thread can make sound. Each test
//! stops just before the undefined behaviour.
//!
//! Each case breaks an assumption of strict nesting that code outside of this crate makes. A test
//! that fails means that the language or the standard library has closed a hole, and
//! `docs/soundness.md` must be rewritten.

use scoped_tls::scoped_thread_local;
use sinew_context::FiberContext;
use sinew_testkit::child::child;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts its drops.
struct Counted(&'static AtomicUsize);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The initialiser of a thread-local switches away. Meanwhile the thread's own code initialises and
/// borrows the value. When the first initialiser returns, it replaces that value under the borrow.
#[test]
fn a_thread_local_initialiser_that_switches_replaces_a_borrowed_value() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OTHER: Cell<Option<FiberContext>> = const { Cell::new(None) };
        static FIRST: Cell<bool> = const { Cell::new(true) };
        static VALUE: Counted = {
            if FIRST.replace(false) {
                let back = OTHER.take().expect("main waits").resume();
                OTHER.set(back);
            }
            Counted(&DROPPED)
        };
    }
    let fiber = FiberContext::new(|main| {
        OTHER.set(Some(main));
        VALUE.with(|_| ());
        OTHER.take().expect("main waits")
    });
    let inside_the_initialiser = fiber.unwrap().resume().unwrap();
    VALUE.with(|_borrowed| {
        assert_eq!(DROPPED.load(Ordering::Relaxed), 0);
        assert!(inside_the_initialiser.resume().is_none());
        assert_eq!(DROPPED.load(Ordering::Relaxed), 1, "what `_borrowed` refers to is gone");
    });
}

/// A fiber is suspended inside `LocalKey::with`. The destructor of another thread-local drops the
/// fiber after the value was destroyed.
#[test]
fn a_fiber_dropped_by_a_thread_local_may_hold_a_borrow_of_one_that_is_gone() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    static SEEN_BY_THE_FIBER: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static KEPT: RefCell<Option<FiberContext>> = const { RefCell::new(None) };
        static VALUE: Counted = const { Counted(&DROPPED) };
    }
    struct Look;
    impl Drop for Look {
        fn drop(&mut self) {
            SEEN_BY_THE_FIBER.store(DROPPED.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    std::thread::spawn(|| {
        KEPT.with(|_| ()); // registered first, so destroyed last
        let fiber = FiberContext::new(|thread| {
            VALUE.with(|_borrowed| {
                let _look = Look;
                thread.resume().unwrap()
            })
        });
        KEPT.set(fiber.unwrap().resume());
    })
    .join()
    .unwrap();
    assert_eq!(SEEN_BY_THE_FIBER.load(Ordering::Relaxed), 1, "`_borrowed` was gone by then");
}

/// A fiber is suspended inside `LocalKey::with` and forgotten, while another thread still borrows
/// the value from it. The fiber's own thread ends and destroys the value: the frames that lend the
/// value never return, so nothing waits for the borrower.
#[test]
fn a_forgotten_fiber_lends_a_thread_local_that_its_thread_destroys() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static VALUE: Counted = const { Counted(&DROPPED) });
    let (end, is_over) = std::sync::mpsc::channel::<()>();
    let (begin, has_begun) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let fiber = FiberContext::new(move |thread| {
            VALUE.with(|value| {
                std::thread::scope(|threads| {
                    threads.spawn(move || {
                        let borrowed: &Counted = value;
                        begin.send(()).unwrap();
                        let _ = is_over.recv();
                        // A use of `borrowed` here would be a use after free.
                        let _ = borrowed;
                    });
                    thread.resume().unwrap()
                })
            })
        });
        std::mem::forget(fiber.unwrap().resume());
    })
    .join()
    .unwrap();
    has_begun.recv().unwrap();
    // The borrower has not ended: it waits for `end`.
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1, "what `borrowed` refers to is gone");
    drop(end);
}

/// `exit` runs the destructors of thread-locals while the thread's frames are suspended inside
/// `LocalKey::with`. A destructor resumes these frames.
#[test]
fn a_thread_resumed_by_a_destructor_during_exit_may_hold_a_borrow_of_a_value_that_is_gone() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct ResumeOnDrop(Cell<Option<FiberContext>>);
    impl Drop for ResumeOnDrop {
        fn drop(&mut self) {
            if let Some(thread) = self.0.take() {
                let _ = thread.resume();
            }
        }
    }
    thread_local! {
        static KEPT: ResumeOnDrop = const { ResumeOnDrop(Cell::new(None)) };
        static VALUE: Counted = const { Counted(&DROPPED) };
    }
    let name =
        "a_thread_resumed_by_a_destructor_during_exit_may_hold_a_borrow_of_a_value_that_is_gone";
    child(name, || {
        KEPT.with(|_| ());
        VALUE.with(|_borrowed| {
            let fiber = FiberContext::new(|thread| {
                KEPT.with(|kept| kept.0.set(Some(thread)));
                std::process::exit(1)
            });
            let _ = fiber.unwrap().resume();
            assert_eq!(DROPPED.load(Ordering::Relaxed), 1, "`_borrowed` is gone");
            std::process::abort(); // stops before `exit` continues
        });
    })
    .assert_died(6, &[]);
}

/// A thread-local that a call sets and restores at its return is restored in the wrong order.
#[test]
fn scoped_thread_locals_are_not_restored_in_order() {
    scoped_thread_local!(static NAME: &'static str);
    fn hold(name: &'static str, seen: Rc<RefCell<Vec<String>>>) -> FiberContext {
        let fiber = FiberContext::new(move |caller| {
            NAME.set(&name, || {
                let caller = caller.resume().unwrap();
                let now =
                    if NAME.is_set() { NAME.with(|name| name.to_string()) } else { "none".into() };
                seen.borrow_mut().push(format!("{name} sees {now}"));
                caller
            })
        });
        fiber.unwrap().resume().unwrap()
    }
    let seen: Rc<RefCell<Vec<String>>> = Rc::default();
    let (a, b) = (hold("a", seen.clone()), hold("b", seen.clone()));
    // First in, first out: a sees b's value, and b sees none although it is inside its own `set`.
    // If a's frame had been freed, b would restore a pointer to it.
    assert!(a.resume().is_none());
    assert!(b.resume().is_none());
    assert_eq!(*seen.borrow(), ["a sees b", "b sees none"]);
}
