//! Values and actions that are made once.

use crate::caught;
use crate::team::{Member, everywhere};
use sinew::WaitKind;
use sinew::sync::channel::{self};
use sinew::sync::{LazyLock, Mutex, Once, OnceLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn done_once() {
    everywhere(|team| {
        let mut count = 0;
        let once = Once::new();
        once.call_once(|| count += 1);
        once.call_once(|| count += 1);
        assert_eq!(count, 1);

        let shared = Arc::new((Once::new(), AtomicUsize::new(0)));
        let members: Vec<_> = (0..10)
            .map(|_| {
                let shared = shared.clone();
                team.start(move || {
                    sinew::yield_now();
                    shared.0.call_once(|| {
                        let before = shared.1.load(Ordering::Relaxed);
                        sinew::yield_now();
                        shared.1.store(before + 1, Ordering::Relaxed);
                    });
                    assert_eq!(shared.1.load(Ordering::Relaxed), 1);
                })
            })
            .collect();
        members.into_iter().for_each(Member::end);
    });
}

#[test]
fn tried_again_after_a_panic() {
    everywhere(|team| {
        let once = Arc::new(Once::new());
        for _ in 0..2 {
            assert_eq!(caught(|| once.call_once(|| panic!("on purpose"))), "on purpose");
            assert!(!once.is_completed());
        }
        // A caller that comes during the next try waits for its end, and does nothing.
        let (begin, begun) = channel::bounded(0);
        let (finish, may_finish) = channel::bounded::<()>(0);
        let first = {
            let once = once.clone();
            team.start(move || {
                once.call_once(|| {
                    begin.send(()).unwrap();
                    may_finish.recv().unwrap();
                });
            })
        };
        begun.recv().unwrap();
        let second = {
            let once = once.clone();
            team.start(move || {
                once.call_once(|| unreachable!());
                once.is_completed()
            })
        };
        second.waits(WaitKind::Lock);
        assert!(!once.is_completed());
        finish.send(()).unwrap();
        first.end();
        assert!(second.end());
        // A waiter runs its own closure when the closure that it waited for panics.
        let once = Arc::new(Once::new());
        let (begin, begun) = channel::bounded(0);
        let (finish, may_finish) = channel::bounded::<()>(0);
        let first = {
            let once = once.clone();
            team.start(move || {
                once.call_once(|| {
                    begin.send(()).unwrap();
                    may_finish.recv().unwrap();
                    panic!("on purpose");
                });
            })
        };
        begun.recv().unwrap();
        let second = {
            let once = once.clone();
            team.start(move || {
                let mut called = false;
                once.call_once(|| called = true);
                called
            })
        };
        second.waits(WaitKind::Lock);
        finish.send(()).unwrap();
        assert!(first.result().is_err());
        assert!(second.end());
    });
}

#[test]
fn a_value_is_written_once() {
    everywhere(|team| {
        let value = Arc::new(OnceLock::new());
        assert!(value.get().is_none());
        let theirs = value.clone();
        team.start(move || assert_eq!(*theirs.get_or_init(|| 92), 92)).end();
        assert_eq!(*value.get_or_init(|| unreachable!()), 92);
        assert_eq!(value.set(7), Err(7));
        assert_eq!(value.get(), Some(&92));
    });
    fn numbers() -> &'static [u64] {
        static NUMBERS: OnceLock<Vec<u64>> = OnceLock::new();
        static MADE: AtomicUsize = AtomicUsize::new(0);
        NUMBERS.get_or_init(|| {
            assert_eq!(MADE.fetch_add(1, Ordering::Relaxed), 0);
            std::iter::successors(Some((1, 1)), |&(a, b)| Some((b, a + b)))
                .map(|pair| pair.0)
                .take(12)
                .collect()
        })
    }
    assert_eq!((numbers()[5], numbers()[11]), (8, 144));
}

#[test]
fn a_written_value_can_be_changed_cloned_and_taken() {
    let mut value = OnceLock::new();
    assert!(value.get_mut().is_none());
    assert!(value.clone().get().is_none());
    value.set("hello".to_owned()).unwrap();
    value.get_mut().unwrap().push('!');
    let copy = value.clone();
    assert_eq!(value.into_inner().as_deref(), Some("hello!"));
    assert_eq!(copy.get().map(String::as_str), Some("hello!"));
    assert_eq!(OnceLock::<String>::new().into_inner(), None);
    assert_eq!(OnceLock::from("value").get(), Some(&"value"));
}

#[test]
fn a_written_value_is_dropped_once() {
    everywhere(|team| {
        let token = Arc::new(());
        let (value, theirs) = (OnceLock::new(), token.clone());
        team.start(move || {
            value.get_or_init(|| theirs.clone());
            assert_eq!(Arc::strong_count(&theirs), 3);
            drop(value);
            assert_eq!(Arc::strong_count(&theirs), 2);
        })
        .end();
        assert_eq!(Arc::strong_count(&token), 1);
        drop(OnceLock::<Arc<()>>::new());
        let refused = OnceLock::from(token.clone()).set(token.clone());
        assert_eq!(Arc::strong_count(&token), 2, "the one that was refused");
        drop(refused);
        assert_eq!(Arc::strong_count(&token), 1);
    });
}

#[test]
fn a_value_that_could_not_be_made() {
    let value = OnceLock::<String>::new();
    let failed: fn() -> Result<String, ()> = || panic!("on purpose");
    assert_eq!(caught(|| value.get_or_try_init(failed).cloned()), "on purpose");
    assert!(value.get().is_none());
    assert_eq!(value.get_or_try_init(|| Err("no")), Err("no"));
    assert!(value.get().is_none());
    let made = value.get_or_try_init(|| Ok::<_, ()>("hello".to_owned()));
    assert_eq!(made.map(String::as_str), Ok("hello"));
    assert_eq!(value.get_or_try_init(|| Err("never asked")).map(String::as_str), Ok("hello"));
}

#[test]
fn half_a_value_is_never_seen() {
    everywhere(|team| {
        for _ in 0..20 {
            let value = Arc::new(OnceLock::new());
            let readers: Vec<_> = (0..6)
                .map(|_| {
                    let value = value.clone();
                    team.start(move || {
                        sinew::wait_until(|| value.get().is_some());
                        value.get().cloned()
                    })
                })
                .collect();
            let writers: Vec<_> = (0..3)
                .map(|_| {
                    let value = value.clone();
                    team.start(move || value.set("hello, all of you".to_owned()).is_ok())
                })
                .collect();
            assert_eq!(writers.into_iter().map(Member::end).filter(|&written| written).count(), 1);
            for reader in readers {
                assert_eq!(reader.end().as_deref(), Some("hello, all of you"));
            }
        }
    });
}

#[test]
fn a_lazy_value_is_made_once() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static VALUE: LazyLock<Vec<i32>> = LazyLock::new(|| {
        MADE.fetch_add(1, Ordering::Relaxed);
        vec![1, 2, 3]
    });
    fn value() -> &'static [i32] {
        static VALUE: LazyLock<Vec<i32>> = LazyLock::new(|| vec![4, 5]);
        &VALUE
    }
    struct Default42(u8);
    impl Default for Default42 {
        fn default() -> Self {
            MADE.fetch_add(100, Ordering::Relaxed);
            Default42(42)
        }
    }
    assert_eq!(MADE.load(Ordering::Relaxed), 0);
    everywhere(|team| {
        let members: Vec<_> = (0..4).map(|_| team.start(|| VALUE.len() + value().len())).collect();
        assert!(members.into_iter().all(|member| member.end() == 5));
        assert_eq!(*VALUE, [1, 2, 3]);
        assert_eq!(MADE.load(Ordering::Relaxed), 1);
    });
    let lazy = LazyLock::<Mutex<Default42>>::default();
    assert_eq!(MADE.load(Ordering::Relaxed), 1);
    assert_eq!(lazy.lock().0, 42);
    lazy.lock().0 = 21;
    assert_eq!((lazy.lock().0, MADE.load(Ordering::Relaxed)), (21, 101));
}

#[test]
fn a_lazy_value_that_could_not_be_made() {
    everywhere(|team| {
        let lazy = Arc::new(LazyLock::<String>::new(|| panic!("its own words")));
        assert_eq!(caught(|| lazy.len()), "its own words");
        for _ in 0..2 {
            let text = caught(|| lazy.len());
            assert!(text.contains("panicked before"), "{text}");
        }
        let theirs = lazy.clone();
        assert!(team.start(move || theirs.len()).result().is_err());
    });
}
