//! What the tests of `std::sync` check, as behaviours of `sinew::sync`.
//!
//! Three things differ throughout. Nothing is poisoned: what a panic leaves behind is there for the
//! next one. `Once` and `OnceLock` try again after a panic. And who locks what it has locked is told
//! so by a panic. `channel` stands for `mpsc`, `mpmc` and `sync_channel` alike, so that one row is
//! for the tests of that name in all three files that have it.
//!
//! | in `library/std/tests/sync` | here, or why not |
//! | --- | --- |
//! | `mutex.rs`, each `poison_` and `nonpoison_` | |
//! | `smoke`, `lots_and_lots` | [`a_mutex_counts`], `locks::one_at_a_time` |
//! | `try_lock` | [`trying_to_lock`] |
//! | `test_into_inner`, `test_into_inner_drop`, `test_get_mut` | [`data_of_locks_without_locking`] |
//! | `test_needs_drop` | no: about the types of the test |
//! | `test_get_cloned`, `test_set`, `test_set_drop`, `test_replace`, `test_mutex_with_mut` | no: there are no such methods; lock and assign |
//! | `test_mutex_arc_nested` | [`a_lock_in_a_lock`] |
//! | `test_mutex_unsized` | [`locks_of_unsized_data`] |
//! | `test_mapping_mapped_guard` | [`guards_of_parts`] |
//! | `test_panics`, `test_mutex_arc_poison`, `test_mutex_arc_poison_mapped`, `test_into_inner_poison`, `test_get_mut_poison` | [`a_panic_unlocks_and_does_not_poison`] |
//! | `test_get_cloned_poison`, `test_set_poison`, `test_replace_poison` | no: neither the methods nor poisoning |
//! | `panic_while_mapping_unlocked_poison` | [`a_panic_while_mapping_unlocks`] |
//! | `test_mutex_arc_access_in_unwind` | [`locks_in_destructors_while_unwinding`] |
//! | `rwlock.rs`, each `poison_` and `nonpoison_` | |
//! | `smoke` | [`readers_share_and_a_writer_does_not`] |
//! | `frob` | `locks::locks_under_load` |
//! | `test_rw_arc` | [`readers_see_no_half_written_data`] |
//! | `test_rw_arc_access_in_unwind` | [`locks_in_destructors_while_unwinding`] |
//! | `test_rwlock_unsized` | [`locks_of_unsized_data`] |
//! | `test_into_inner`, `test_into_inner_drop`, `test_get_mut` | [`data_of_locks_without_locking`] |
//! | `test_rwlock_try_write` | [`trying_to_lock`] |
//! | `test_get_cloned`, `test_set`, `test_replace`, `test_rwlock_with`, `test_rwlock_with_mut`, and `…_poison` | no: there are no such methods; lock and assign |
//! | `test_needs_drop` | no: about the types of the test |
//! | `test_read_guard_covariance` | no: the guards of `lock_api` are invariant |
//! | `test_mapped_read_guard_covariance` | [`guards_of_parts`] |
//! | `test_downgrade_basic`, `test_downgrade_observe` | [`what_was_written_is_read_after_the_downgrade`] |
//! | `test_downgrade_atomic` | [`no_writer_comes_in_between`] |
//! | `test_mapping_mapped_guard` | [`guards_of_parts`] |
//! | `test_rw_arc_poison_*`, `test_rw_arc_no_poison_*`, `test_into_inner_poison`, `test_get_mut_poison` | [`a_panic_unlocks_and_does_not_poison`] |
//! | `panic_while_mapping_read_unlocked_no_poison`, `panic_while_mapping_write_unlocked_poison` | [`a_panic_while_mapping_unlocks`] |
//! | `test_rwlock_max_readers` | [`many_read_at_once`], not all 2³⁰ of them |
//! | `reentrant_lock.rs` | no: there is none, see `locks::locking_again_is_an_error` |
//! | `condvar.rs`, each `poison_` and `nonpoison_` | |
//! | `smoke` | [`notifying_nobody`] |
//! | `notify_one`, `test_mutex_arc_condvar` | [`a_notification_wakes_one`] |
//! | `notify_all` | [`all_are_notified`], `locks::all_who_wait_are_notified` |
//! | `wait_while` | [`waiting_while`] |
//! | `wait_timeout_wait`, `wait_timeout_wake`, `timeout_nanoseconds` | [`waits_with_a_timeout`] |
//! | `wait_timeout_while_wait`, `…_instant_satisfy`, `…_wake` | [`waiting_while_with_a_timeout`] |
//! | `test_arc_condvar_poison` | [`a_notifier_that_panics`] |
//! | `barrier.rs` | |
//! | `test_barrier` | [`a_barrier_has_one_leader`], `signals::rounds_of_a_barrier` |
//! | `RefUnwindSafe` of `Barrier` | [`signals_go_through_a_panic`] |
//! | `once.rs` | |
//! | `smoke_once`, `stampede_once` | [`done_once`] |
//! | `poison_bad`, `wait_for_force_to_finish` | [`tried_again_after_a_panic`] |
//! | `wait`, `wait_on_poisoned`, `wait_force_on_poisoned` | no: there is no `wait` without something to do |
//! | `once_lock.rs` | |
//! | `sync_once_cell`, `eval_once_macro` | [`a_value_is_written_once`] |
//! | `sync_once_cell_get_mut`, `clone`, `from_impl`, `into_inner`, `is_sync_send` | [`what_can_be_done_with_a_written_value`] |
//! | `sync_once_cell_drop`, `sync_once_cell_drop_empty` | [`a_written_value_is_dropped_once`] |
//! | `get_or_try_init` | [`a_value_that_could_not_be_made`] |
//! | `sync_once_cell_does_not_leak_partially_constructed_boxes` | [`half_a_value_is_never_seen`] |
//! | `partialeq_impl` | [`once_locks_are_compared`] |
//! | `dropck` | no: takes an unstable attribute |
//! | `lazy_lock.rs` | |
//! | `sync_lazy_new`, `sync_lazy_default`, `static_sync_lazy`, `static_sync_lazy_via_fn`, `is_sync_send` | [`a_lazy_value_is_made_once`] |
//! | `lazy_lock_deref_panic`, `lazy_lock_preserves_closure_panic_message` | [`a_lazy_value_that_could_not_be_made`] |
//! | `lazy_default`, `lazy_type_inference`, `lazy_poisoning` | no: about `LazyCell` |
//! | `const_lazy_default`, `lazy_force_mut`, `lazy_lock_deref_mut_panic` | no: neither a constant default nor `force_mut` |
//! | `mpsc.rs`, `mpmc.rs`, `mpsc_sync.rs` | |
//! | `smoke`, `smoke_shared`, `smoke_threads`, `send1`, `send_from_outside_runtime`, `recv_from_outside_runtime`, `no_runtime` | [`messages_between_fibers_and_threads`] |
//! | `drop_full`, `drop_full_shared`, `drop_unreceived` | [`messages_that_nobody_received`], `channels::messages_go_with_the_last_receiver` |
//! | `smoke_port_gone`, `smoke_shared_port_gone`, `smoke_shared_port_gone2`, `oneshot_single_thread_send_port_close`, `issue_32114`, `send2`, `send3`, `send4` | [`no_receiver_is_left`] |
//! | `port_gone_concurrent`, `port_gone_concurrent_shared` | [`senders_notice_that_the_receiver_went`] |
//! | `smoke_chan_gone`, `smoke_chan_gone_shared`, `oneshot_single_thread_recv_chan_close` | [`no_sender_is_left`] |
//! | `chan_gone_concurrent` | [`receivers_notice_that_the_sender_went`] |
//! | `smoke_receiver_clone`, `smoke_receiver_clone_port_gone`, `receiver_cloning` | [`receivers_that_are_cloned`] |
//! | `stress`, `stress_shared`, `shared_chan_stress` | [`many_messages_of_many_senders`], `channels::every_message_arrives_once_and_in_order` |
//! | `oneshot_single_thread_close_port_first`, `…_close_chan_first` | [`ends_go_in_any_order`] |
//! | `oneshot_single_thread_send_then_recv`, `…_try_send_*`, `…_try_recv_*`, `…_peek_*`, `try_recv_states`, `try_send1`, `try_send2`, `try_send3` | [`trying_says_why_not`] |
//! | `oneshot_multi_task_recv_then_send`, `…_recv_then_close` | [`who_waits_is_served_or_told`] |
//! | `oneshot_multi_thread_close_stress`, `…_send_close_stress`, `…_recv_close_stress`, `…_send_recv_stress` | [`sending_receiving_and_leaving_at_once`] |
//! | `stream_send_recv_stress` | [`ends_are_passed_on`] |
//! | `oneshot_single_thread_recv_timeout`, `recv_timeout`, `send_timeout`, `recv_timeout_upgrade`, `shared_recv_timeout` | [`timeouts_of_shared_channels`], `channels::timed_operations_say_which_it_was` |
//! | `stress_recv_timeout_two_threads`, `stress_recv_timeout_shared` | [`short_timeouts_miss_nothing`] |
//! | `very_long_recv_timeout_wont_panic` | [`timeouts_beyond_all_clocks`] |
//! | `recv_a_lot` | [`a_lot_on_the_way`] |
//! | `test_nested_recv_iter`, `test_recv_iter_break`, `test_recv_try_iter`, `test_recv_into_iter_*` | [`loops_over_messages`] |
//! | `destroy_upgraded_shared_port_when_sender_still_active`, `issue_39364`, `issue_15761` | [`clones_that_come_late`] |
//! | `mpmc/tests.rs`: `waker_current_thread_id` | no: about how it is made |
//! | `oneshot.rs` | |
//! | `send_before_*`, `recv_before_send`, `recv_timeout_before_send`, `try_recv_empty`, `try_recv_then_drop_receiver` | [`one_message`] |
//! | `sender_drop`, `send_never_deadline`, `recv_then_drop_sender`, `drop_sender_then_recv` | [`no_message`] |
//! | `recv_no_time`, `recv_deadline_passed`, `recv_time_passed` | [`no_message`], [`deadlines_that_have_passed`] |
//! | `send_error`, `send_error_drops_*`, `message_in_channel_dropped_on_receiver_drop`, `non_send_type_can_be_used_on_same_thread` | [`a_message_that_nobody_wanted`] |

mod team;

use sinew::sync::channel::{
    self, Receiver, RecvError, RecvTimeoutError, SendTimeoutError, Sender, TryRecvError,
    TrySendError,
};
use sinew::sync::{
    Barrier, Condvar, LazyLock, MappedMutexGuard, MappedRwLockReadGuard, MappedRwLockWriteGuard,
    Mutex, MutexGuard, Once, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use sinew::{Runtime, WaitKind};
use sinew_testkit::watch;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use team::{Member, Team, everywhere};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

const fn shared<T: Send + Sync>() {}
const fn unwind_safe<T: RefUnwindSafe>() {}
const _: () = {
    shared::<Barrier>();
    shared::<Condvar>();
    shared::<Once>();
    shared::<OnceLock<String>>();
    shared::<LazyLock<String>>();
    shared::<Mutex<String>>();
    shared::<RwLock<String>>();
    shared::<Sender<String>>();
    shared::<Receiver<String>>();
    unwind_safe::<Once>();
    unwind_safe::<OnceLock<String>>();
    unwind_safe::<LazyLock<String>>();
    unwind_safe::<Sender<String>>();
    unwind_safe::<Receiver<String>>();
};

/// What a panic said.
fn caught<T>(work: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(work)).err().expect("it should have panicked");
    match payload.downcast::<&str>() {
        Ok(text) => (*text).to_owned(),
        Err(payload) => *payload.downcast::<String>().expect("a text"),
    }
}

// Locks.

#[test]
fn a_mutex_counts() {
    everywhere(|team| {
        let mutex = Mutex::new(());
        drop(mutex.lock());
        drop(mutex.lock());

        let count = Arc::new(Mutex::new(0));
        let members: Vec<_> = (0..6)
            .map(|_| {
                let count = count.clone();
                team.start(move || (0..500).for_each(|_| *count.lock() += 1))
            })
            .collect();
        members.into_iter().for_each(Member::end);
        assert_eq!(*count.lock(), 3000);

        // Borrowed by children of a scope.
        let count = Mutex::new(0);
        let work = || (0..100).for_each(|_| *count.lock() += 1);
        match team {
            Team::Fibers => sinew::scope(|s| (0..4).for_each(|_| drop(s.spawn(work)))),
            Team::Threads => std::thread::scope(|s| (0..4).for_each(|_| drop(s.spawn(work)))),
        }
        assert_eq!(count.into_inner(), 400);
    });
}

#[test]
fn trying_to_lock() {
    everywhere(|team| {
        let locks = Arc::new((Mutex::new(1), RwLock::new(2)));
        *locks.0.try_lock().unwrap() += 1;
        *locks.1.try_write().unwrap() += 1;
        let try_all = || {
            let locks = locks.clone();
            let all = move || {
                let (mutex, lock) = &*locks;
                let locked = mutex.try_lock().is_some();
                let read = lock.try_read().is_some();
                let written = lock.try_write().is_some();
                [locked, read, written]
            };
            team.start(all).end()
        };
        assert_eq!(try_all(), [true, true, true]);
        {
            let _held = (locks.0.lock(), locks.1.read());
            assert_eq!(try_all(), [false, true, false]);
        }
        {
            let _held = RwLockReadGuard::map(locks.1.read(), |_| &());
            assert_eq!(try_all(), [true, true, false]);
        }
        {
            let _held = locks.1.write();
            assert_eq!(try_all(), [true, false, false]);
        }
        assert_eq!((*locks.0.lock(), *locks.1.read()), (2, 3));
    });
}

#[test]
fn data_of_locks_without_locking() {
    #[derive(PartialEq, Debug)]
    struct NotCopy(Arc<()>);
    let token = Arc::new(());
    let data = || NotCopy(token.clone());
    let (mut mutex, mut lock) = (Mutex::new(data()), RwLock::new(data()));
    let other = NotCopy(Arc::new(()));
    *mutex.get_mut() = NotCopy(other.0.clone());
    assert_eq!(Arc::strong_count(&token), 2, "what was there is dropped");
    let (inner, _read) = (mutex.into_inner(), lock.get_mut());
    assert!(Arc::ptr_eq(&inner.0, &other.0));
    let inner = lock.into_inner();
    assert_eq!(Arc::strong_count(&token), 2, "moved out, not dropped");
    drop(inner);
    assert_eq!(Arc::strong_count(&token), 1, "dropped once");
    drop((Mutex::new(data()), RwLock::new(data())));
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn a_lock_in_a_lock() {
    everywhere(|team| {
        let inner = Arc::new(Mutex::new(1));
        let outer = Arc::new(Mutex::new(inner.clone()));
        let member = team.start(move || *outer.lock().lock() += 1);
        member.end();
        assert_eq!(*inner.lock(), 2);
    });
}

#[test]
fn locks_of_unsized_data() {
    let (mutex, lock): (&Mutex<[i32]>, &RwLock<[i32]>) =
        (&Mutex::new([1, 2, 3]), &RwLock::new([1, 2, 3]));
    for data in [&mut *mutex.lock(), &mut *lock.write()] {
        data[0] = 4;
        data[2] = 5;
    }
    assert_eq!((&*mutex.lock(), &*lock.read()), (&[4, 2, 5][..], &[4, 2, 5][..]));
}

#[test]
fn guards_of_parts() {
    let mutex = Mutex::new([0; 4]);
    let guard = MutexGuard::map(mutex.lock(), |data| &mut data[..2]);
    let mut guard = MappedMutexGuard::map(guard, |part| &mut part[1..]);
    assert_eq!(guard.len(), 1);
    guard[0] = 42;
    assert!(mutex.try_lock().is_none(), "a part locks all");
    drop(guard);
    assert_eq!(*mutex.lock(), [0, 42, 0, 0]);

    let lock = RwLock::new([0; 4]);
    let guard = RwLockWriteGuard::map(lock.write(), |data| &mut data[..2]);
    let mut guard = MappedRwLockWriteGuard::map(guard, |part| &mut part[1..]);
    guard[0] = 42;
    assert!(lock.try_read().is_none());
    drop(guard);
    let guard = RwLockReadGuard::map(lock.read(), |data| &data[..2]);
    let guard = MappedRwLockReadGuard::map(guard, |part| &part[1..]);
    assert_eq!(*guard, [42]);
    assert!(lock.try_read().is_some() && lock.try_write().is_none());
    drop(guard);
    assert!(lock.try_write().is_some());

    // To read a part is to read it for a shorter time, too.
    fn both<'a>(guard: &MappedRwLockReadGuard<'_, &'a i32>, other: &'a i32) -> i32 {
        **guard + *other
    }
    let long = 5;
    let lock = RwLock::new((&long, ()));
    {
        let short = 6;
        let guard: MappedRwLockReadGuard<'_, &i32> =
            RwLockReadGuard::map(lock.read(), |pair| &pair.0);
        assert_eq!(both(&guard, &short), 11);
    }
    assert_eq!(**RwLockReadGuard::map(lock.read(), |pair| &pair.0), 5);
}

#[test]
fn a_panic_unlocks_and_does_not_poison() {
    everywhere(|team| {
        let locks = Arc::new((Mutex::new(0), RwLock::new(0)));
        type Panics = fn(&(Mutex<i32>, RwLock<i32>));
        let ways: [Panics; 6] = [
            |locks| {
                let mut guard = locks.0.lock();
                *guard += 1;
                panic!("on purpose");
            },
            |locks| {
                let mut guard = MutexGuard::map(locks.0.lock(), |data| data);
                *guard += 1;
                panic!("on purpose");
            },
            |locks| {
                let mut guard = locks.1.write();
                *guard += 1;
                panic!("on purpose");
            },
            |locks| {
                let mut guard = RwLockWriteGuard::map(locks.1.write(), |data| data);
                *guard += 1;
                panic!("on purpose");
            },
            |locks| {
                let _guard = locks.1.read();
                panic!("on purpose");
            },
            |locks| {
                let _guard = RwLockReadGuard::map(locks.1.read(), |data| data);
                panic!("on purpose");
            },
        ];
        for way in ways {
            let theirs = locks.clone();
            assert!(team.start(move || way(&theirs)).result().is_err());
            assert!(locks.0.try_lock().is_some() && locks.1.try_write().is_some());
            // Again on the same stack.
            assert_eq!(caught(|| way(&locks)), "on purpose");
            assert!(locks.0.try_lock().is_some() && locks.1.try_write().is_some());
        }
        let (mutex, lock) = Arc::into_inner(locks).unwrap();
        assert_eq!((mutex.into_inner(), lock.into_inner()), (4, 4));
    });
}

#[test]
fn a_panic_while_mapping_unlocks() {
    let mutex = Mutex::new(());
    let ways: [&dyn Fn(); 4] = [
        &|| drop(MutexGuard::map::<(), _>(mutex.lock(), |_| panic!("on purpose"))),
        &|| drop(MutexGuard::try_map::<(), _>(mutex.lock(), |_| panic!("on purpose"))),
        &|| {
            let guard = MutexGuard::map(mutex.lock(), |data| data);
            drop(MappedMutexGuard::map::<(), _>(guard, |_| panic!("on purpose")));
        },
        &|| {
            let guard = MutexGuard::map(mutex.lock(), |data| data);
            drop(MappedMutexGuard::try_map::<(), _>(guard, |_| panic!("on purpose")));
        },
    ];
    for way in ways {
        assert_eq!(caught(way), "on purpose");
        assert!(mutex.try_lock().is_some());
    }
    let lock = RwLock::new(());
    let ways: [&dyn Fn(); 8] = [
        &|| drop(RwLockReadGuard::map::<(), _>(lock.read(), |_| panic!("on purpose"))),
        &|| drop(RwLockReadGuard::try_map::<(), _>(lock.read(), |_| panic!("on purpose"))),
        &|| {
            let guard = RwLockReadGuard::map(lock.read(), |data| data);
            drop(MappedRwLockReadGuard::map::<(), _>(guard, |_| panic!("on purpose")));
        },
        &|| {
            let guard = RwLockReadGuard::map(lock.read(), |data| data);
            drop(MappedRwLockReadGuard::try_map::<(), _>(guard, |_| panic!("on purpose")));
        },
        &|| drop(RwLockWriteGuard::map::<(), _>(lock.write(), |_| panic!("on purpose"))),
        &|| drop(RwLockWriteGuard::try_map::<(), _>(lock.write(), |_| panic!("on purpose"))),
        &|| {
            let guard = RwLockWriteGuard::map(lock.write(), |data| data);
            drop(MappedRwLockWriteGuard::map::<(), _>(guard, |_| panic!("on purpose")));
        },
        &|| {
            let guard = RwLockWriteGuard::map(lock.write(), |data| data);
            drop(MappedRwLockWriteGuard::try_map::<(), _>(guard, |_| panic!("on purpose")));
        },
    ];
    for way in ways {
        assert_eq!(caught(way), "on purpose");
        assert!(lock.try_write().is_some());
    }
}

#[test]
fn locks_in_destructors_while_unwinding() {
    everywhere(|team| {
        struct Counts(Arc<(Mutex<i32>, RwLock<i32>)>);
        impl Drop for Counts {
            fn drop(&mut self) {
                assert!(std::thread::panicking());
                *self.0.0.lock() += 1;
                *self.0.1.write() += 1;
            }
        }
        let locks = Arc::new((Mutex::new(1), RwLock::new(1)));
        let counts = Counts(locks.clone());
        // Both are held when the destructor runs, which has to wait.
        let held = (locks.0.lock(), locks.1.read());
        let member = team.start(move || {
            let _counts = counts;
            panic!("on purpose");
        });
        member.waits(WaitKind::Lock);
        drop(held);
        assert!(member.result().is_err());
        assert_eq!((*locks.0.lock(), *locks.1.read()), (2, 2));
    });
}

#[test]
fn readers_share_and_a_writer_does_not() {
    everywhere(|team| {
        let lock = Arc::new(RwLock::new(0));
        drop(lock.read());
        drop(lock.write());
        drop((lock.read(), lock.read()));
        drop(lock.write());
        // Readers meet with the lock held.
        let barrier = Arc::new(Barrier::new(4));
        let members: Vec<_> = (0..4)
            .map(|_| {
                let (lock, barrier) = (lock.clone(), barrier.clone());
                team.start(move || {
                    let guard = lock.read();
                    barrier.wait();
                    *guard
                })
            })
            .collect();
        assert_eq!(members.into_iter().map(Member::end).sum::<i32>(), 0);
        let guard = lock.write();
        let reader = {
            let lock = lock.clone();
            team.start(move || drop(lock.read()))
        };
        reader.waits(WaitKind::Lock);
        drop(guard);
        reader.end();
    });
}

#[test]
fn readers_see_no_half_written_data() {
    everywhere(|team| {
        let lock = Arc::new(RwLock::new(0));
        let writer = {
            let lock = lock.clone();
            team.start(move || {
                for _ in 0..10 {
                    let mut number = lock.write();
                    for _ in 0..3 {
                        let before = std::mem::replace(&mut *number, -1);
                        sinew::yield_now();
                        *number = before + 1;
                    }
                }
            })
        };
        let readers: Vec<_> = (0..5)
            .map(|_| {
                let lock = lock.clone();
                team.start(move || {
                    let mut last = 0;
                    while last < 30 {
                        let now = *lock.read();
                        assert!(now >= last && now % 3 == 0, "{now} after {last}");
                        last = now;
                        sinew::yield_now();
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(Member::end);
        writer.end();
    });
}

#[test]
fn what_was_written_is_read_after_the_downgrade() {
    everywhere(|team| {
        let lock = Arc::new(RwLock::new(0));
        let members: Vec<_> = (0..10)
            .map(|n| {
                let lock = lock.clone();
                team.start(move || {
                    for _ in 0..50 {
                        let mut guard = lock.write();
                        *guard += 1;
                        let written = *guard;
                        let guard = RwLockWriteGuard::downgrade(guard);
                        if n % 2 == 0 {
                            sinew::yield_now();
                        }
                        assert_eq!(*guard, written);
                    }
                })
            })
            .collect();
        members.into_iter().for_each(Member::end);
        assert_eq!(*lock.read(), 500);
    });
}

#[test]
fn no_writer_comes_in_between() {
    everywhere(|team| {
        let lock = Arc::new(RwLock::new(0));
        let mut guard = lock.write();
        let members: Vec<_> = (0..20)
            .map(|n| {
                let lock = lock.clone();
                team.start(move || match n {
                    0 => assert!(*lock.read() >= -1),
                    _ => *lock.write() += 1,
                })
            })
            .collect();
        members.iter().for_each(|member| member.waits(WaitKind::Lock));
        *guard = -1;
        let guard = RwLockWriteGuard::downgrade(guard);
        for _ in 0..20 {
            sinew::yield_now();
            assert_eq!(*guard, -1);
        }
        assert!(lock.try_write().is_none());
        drop(guard);
        members.into_iter().for_each(Member::end);
        assert_eq!(*lock.read(), 18);
    });
}

#[test]
fn many_read_at_once() {
    let lock = RwLock::new(7);
    for _ in 0..100_000 {
        std::mem::forget(lock.try_read().unwrap());
    }
    assert!(lock.try_write().is_none());
    assert_eq!(*lock.read(), 7);
}

// Conditions and meetings.

#[test]
fn notifying_nobody() {
    let changed = Condvar::new();
    assert!(!changed.notify_one());
    assert_eq!(changed.notify_all(), 0);
    // It is not kept for later.
    let lock = Mutex::new(());
    assert!(!changed.wait_for(&mut lock.lock(), MS));
}

/// How many have begun to wait, and how many have been woken.
type Counts = Mutex<[usize; 2]>;

/// Members that wait for a notification; all of them wait when this returns.
fn waiting(team: Team, count: usize) -> (Arc<(Counts, Condvar)>, Vec<Member<()>>) {
    let shared = Arc::new((Mutex::new([0, 0]), Condvar::new()));
    let members = (0..count)
        .map(|_| {
            let shared = shared.clone();
            team.start(move || {
                let (counts, changed) = &*shared;
                let mut counts = counts.lock();
                counts[0] += 1;
                changed.wait(&mut counts);
                counts[1] += 1;
            })
        })
        .collect();
    // Who has counted itself unlocks by waiting.
    reaches(&shared.0, [count, 0]);
    (shared, members)
}

/// Waits until there are so many of both.
fn reaches(counts: &Counts, expected: [usize; 2]) {
    let there = |counts: &[usize; 2]| counts[0] >= expected[0] && counts[1] >= expected[1];
    sinew::wait_until(|| counts.try_lock().is_some_and(|counts| there(&counts)), None);
}

#[test]
fn a_notification_wakes_one() {
    everywhere(|team| {
        let (shared, members) = waiting(team, 5);
        let (counts, changed) = &*shared;
        for woken in 1..=5 {
            assert!(changed.notify_one());
            reaches(counts, [5, woken]);
            (0..5).for_each(|_| sinew::yield_now());
            assert_eq!(*counts.lock(), [5, woken]);
        }
        assert!(!changed.notify_one(), "all have been notified");
        members.into_iter().for_each(Member::end);
    });
}

#[test]
fn all_are_notified() {
    everywhere(|team| {
        let (shared, members) = waiting(team, 20);
        let held = shared.0.lock();
        assert_eq!(shared.1.notify_all(), 20);
        assert_eq!(shared.1.notify_all(), 0);
        assert_eq!(*held, [20, 0], "they need the lock to go on");
        drop(held);
        members.into_iter().for_each(Member::end);
        assert_eq!(*shared.0.lock(), [20, 20]);
    });
}

#[test]
fn waiting_while() {
    everywhere(|team| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let member = {
            let shared = shared.clone();
            team.start(move || {
                let mut count = shared.0.lock();
                let mut looked = 0;
                shared.1.wait_while(&mut count, |count| {
                    looked += 1;
                    *count < 3
                });
                (*count, looked)
            })
        };
        member.waits(WaitKind::Condvar);
        for _ in 0..3 {
            *shared.0.lock() += 1;
            shared.1.notify_one();
        }
        let (count, looked) = member.end();
        assert!(count == 3 && looked >= 1, "{count}, looked {looked} times");
        // What is not so need not be waited for.
        shared.1.wait_while(&mut shared.0.lock(), |count| *count < 3);
    });
}

#[test]
fn waits_with_a_timeout() {
    everywhere(|team| {
        let (lock, changed) = (Mutex::new(()), Condvar::new());
        let start = Instant::now();
        assert!(!changed.wait_for(&mut lock.lock(), 2 * MS));
        assert!(start.elapsed() >= 2 * MS);
        assert!(!changed.wait_until(&mut lock.lock(), Instant::now()));
        // Longer than fits a clock that counts nanoseconds, and longer than any.
        let nanoseconds = Duration::from_secs(u64::MAX.div_ceil(1_000_000_000));
        for timeout in [nanoseconds, Duration::from_millis(u64::MAX), Duration::MAX] {
            let shared = Arc::new((Mutex::new(false), Condvar::new()));
            let member = {
                let shared = shared.clone();
                team.start(move || {
                    let mut open = shared.0.lock();
                    while !*open {
                        assert!(shared.1.wait_for(&mut open, timeout), "{timeout:?} are not over");
                    }
                })
            };
            member.waits(WaitKind::Condvar);
            *shared.0.lock() = true;
            shared.1.notify_all();
            member.end();
        }
    });
}

#[test]
fn waiting_while_with_a_timeout() {
    everywhere(|team| {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let (open, changed) = &*shared;
        assert!(!changed.wait_while_for(&mut open.lock(), |_| true, MS));
        assert!(changed.wait_while_for(&mut open.lock(), |_| false, Duration::ZERO));
        let mut guard = open.lock();
        let member = {
            let shared = shared.clone();
            team.start(move || {
                *shared.0.lock() = true;
                shared.1.notify_one();
            })
        };
        assert!(changed.wait_while_for(&mut guard, |open| !*open, Duration::from_millis(u64::MAX)));
        assert!(*guard);
        drop(guard);
        member.end();
    });
}

#[test]
fn a_notifier_that_panics() {
    everywhere(|team| {
        let shared = Arc::new((Mutex::new(1), Condvar::new()));
        let mut number = shared.0.lock();
        let member = {
            let shared = shared.clone();
            team.start(move || {
                let mut number = shared.0.lock();
                *number = 2;
                shared.1.notify_one();
                panic!("on purpose");
            })
        };
        shared.1.wait_while(&mut number, |number| *number == 1);
        assert_eq!(*number, 2);
        drop(number);
        assert!(member.result().is_err());
    });
}

#[test]
fn a_barrier_has_one_leader() {
    everywhere(|team| {
        const SIZE: usize = 10;
        let barrier = Arc::new(Barrier::new(SIZE));
        let (sender, receiver) = channel::unbounded();
        for _ in 1..SIZE {
            let (barrier, sender) = (barrier.clone(), sender.clone());
            team.start(move || sender.send(barrier.wait().is_leader()).unwrap());
        }
        drop(sender);
        assert_eq!(receiver.recv_timeout(MS), Err(RecvTimeoutError::Timeout), "one is missing");
        let mine = barrier.wait().is_leader();
        let leaders: Vec<_> = receiver.iter().chain([mine]).collect();
        assert_eq!(leaders.len(), SIZE);
        assert_eq!(leaders.into_iter().filter(|&leader| leader).count(), 1);
    });
}

// Once.

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
        // Whoever comes while it is done the next time waits for that, and does nothing.
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
        // One who waits for somebody that panics does it in its place.
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
fn what_can_be_done_with_a_written_value() {
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
                        sinew::wait_until(|| value.get().is_some(), None);
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

// Channels.

/// The kinds of channels: with so much room, or any number.
const KINDS: [Option<usize>; 4] = [Some(0), Some(1), Some(10), None];

fn open<T>(kind: Option<usize>) -> (Sender<T>, Receiver<T>) {
    kind.map_or_else(channel::unbounded, channel::bounded)
}

#[test]
fn messages_between_fibers_and_threads() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let start = |team: Team, work: Box<dyn FnOnce() -> i32 + Send>| match team {
        Team::Fibers => Member::Fiber(runtime.spawn(work)),
        Team::Threads => Member::Thread(std::thread::spawn(work)),
    };
    for kind in KINDS {
        for sends in [Team::Fibers, Team::Threads] {
            for receives in [Team::Fibers, Team::Threads] {
                let (sender, receiver) = open(kind);
                let (back, answer) = open(kind);
                let clone = sender.clone();
                drop(sender);
                let one = start(
                    sends,
                    Box::new(move || {
                        (1..=40).for_each(|number| clone.send(number).unwrap());
                        answer.recv().unwrap()
                    }),
                );
                let other = start(
                    receives,
                    Box::new(move || {
                        let sum = receiver.iter().take(40).sum();
                        back.send(sum).unwrap();
                        receiver.iter().count() as i32
                    }),
                );
                assert_eq!((one.end(), other.end()), (820, 0));
            }
        }
    }
    // And without anybody else.
    let (sender, receiver) = open(None);
    sender.clone().send(1).unwrap();
    assert_eq!(receiver.recv(), Ok(1));
}

#[test]
fn messages_that_nobody_received() {
    let token = Rc::new(());
    for kind in [Some(1), Some(10), None] {
        for sender_first in [true, false] {
            let (sender, receiver) = open(kind);
            drop((sender.clone(), sender.clone(), receiver.clone()));
            sender.send(token.clone()).unwrap();
            if sender_first {
                drop(sender);
                assert_eq!(Rc::strong_count(&token), 2, "it can still be received");
                drop(receiver);
            } else {
                drop(receiver);
                assert_eq!(Rc::strong_count(&token), 1, "nobody can receive it");
                drop(sender);
            }
            assert_eq!(Rc::strong_count(&token), 1);
        }
    }
}

#[test]
fn no_receiver_is_left() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            drop(receiver);
            assert_eq!(sender.send(1).unwrap_err().0, 1);
            assert_eq!(sender.send(2).unwrap_err().0, 2, "and again");
            let clone = sender.clone();
            drop(sender);
            assert_eq!(clone.send(3).unwrap_err().0, 3, "also by a clone");
        }
        // Senders that wait for room, or come too late.
        for room in [0, 1] {
            let (sender, receiver) = open(Some(room));
            (0..room).for_each(|_| sender.send(0).unwrap());
            let members: Vec<_> = (1..=2)
                .map(|number| {
                    let sender = sender.clone();
                    team.start(move || sender.send(number).unwrap_err().0)
                })
                .collect();
            members[0].waits(WaitKind::Send);
            drop(receiver);
            assert_eq!(members.into_iter().map(Member::end).sum::<i32>(), 3);
        }
    });
}

#[test]
fn senders_notice_that_the_receiver_went() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            let members: Vec<_> = (0..2)
                .map(|_| {
                    let sender = sender.clone();
                    team.start(move || {
                        while sender.send(1).is_ok() {
                            sinew::yield_now();
                        }
                    })
                })
                .collect();
            assert_eq!(receiver.recv(), Ok(1));
            drop(receiver);
            members.into_iter().for_each(Member::end);
        }
    });
}

#[test]
fn no_sender_is_left() {
    for kind in KINDS {
        let (sender, receiver) = open::<i32>(kind);
        drop(sender.clone());
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty), "one is left");
        drop(sender);
        for _ in 0..2 {
            assert_eq!(receiver.recv(), Err(RecvError));
        }
    }
}

#[test]
fn receivers_notice_that_the_sender_went() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            let member = team.start(move || {
                sender.send(1).unwrap();
                let clone = sender.clone();
                drop(sender);
                clone.send(2).unwrap();
            });
            assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2]);
            assert_eq!(receiver.recv(), Err(RecvError));
            member.end();
        }
    });
}

#[test]
fn receivers_that_are_cloned() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            let clone = receiver.clone();
            drop(receiver);
            let member = {
                let sender = sender.clone();
                team.start(move || sender.send(1).unwrap())
            };
            let other = clone.clone();
            assert_eq!(other.recv(), Ok(1));
            member.end();
            drop((clone, other));
            assert!(sender.send(2).is_err());
        }
    });
}

#[test]
fn many_messages_of_many_senders() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            let members: Vec<_> = (0..8)
                .map(|_| {
                    let sender = sender.clone();
                    team.start(move || (0..100).for_each(|_| sender.send(1).unwrap()))
                })
                .collect();
            drop(sender);
            assert_eq!(receiver.iter().sum::<i32>(), 800);
            members.into_iter().for_each(Member::end);
        }
    });
}

#[test]
fn ends_go_in_any_order() {
    for kind in KINDS {
        let (sender, receiver) = open::<Box<i32>>(kind);
        drop(receiver);
        assert!(sender.is_disconnected());
        drop(sender);
        let (sender, receiver) = open::<Box<i32>>(kind);
        drop(sender);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    }
}

#[test]
fn trying_says_why_not() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            for _ in 0..2 {
                assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
            }
            if kind == Some(0) {
                assert_eq!(sender.try_send(1), Err(TrySendError::Full(1)));
            } else {
                assert_eq!(sender.try_send(1), Ok(()));
                assert_eq!(sender.try_send(2).is_ok(), kind != Some(1));
                assert_eq!(receiver.try_recv(), Ok(1));
                receiver.try_iter().for_each(drop);
            }
            // As the other side goes on.
            let (step, next) = channel::bounded(0);
            let member = team.start(move || {
                next.recv().unwrap();
                sender.send(3).unwrap();
                next.recv().unwrap();
                drop(sender);
                next.recv().unwrap();
            });
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
            step.send(()).unwrap();
            sinew::wait_until(|| receiver.try_recv() == Ok(3), None);
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
            step.send(()).unwrap();
            step.send(()).unwrap();
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
            member.end();

            let (sender, receiver) = open(kind);
            let left = usize::from(sender.try_send(4).is_ok());
            drop(sender);
            assert_eq!(receiver.try_iter().count(), left, "what was sent is still there");
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));

            let (sender, receiver) = open(kind);
            let _ = sender.try_send(5);
            drop(receiver);
            assert_eq!(sender.try_send(6), Err(TrySendError::Disconnected(6)));
        }
    });
}

#[test]
fn who_waits_is_served_or_told() {
    everywhere(|team| {
        for kind in KINDS {
            for close in [false, true] {
                let (sender, receiver) = open(kind);
                let member = team.start(move || receiver.recv());
                member.waits(WaitKind::Receive);
                if close {
                    drop(sender);
                    assert_eq!(member.end(), Err(RecvError));
                } else {
                    sender.send(Box::new(10)).unwrap();
                    assert_eq!(member.end(), Ok(Box::new(10)));
                }
            }
        }
    });
}

/// Whatever happens to a message, it is received, given back or dropped once.
#[test]
fn sending_receiving_and_leaving_at_once() {
    everywhere(|team| {
        for kind in KINDS {
            for round in 0..20 {
                let token = Arc::new(());
                let (sender, receiver) = open(kind);
                let message = token.clone();
                let one = team.start(move || match round % 4 {
                    0 | 1 => sender.send(message).is_ok(),
                    _ => {
                        drop((sender, message));
                        false
                    }
                });
                let other = team.start(move || match round % 4 {
                    0 | 2 => receiver.recv().is_ok(),
                    _ => {
                        drop(receiver);
                        false
                    }
                });
                let (sent, received) = (one.end(), other.end());
                match round % 4 {
                    0 => assert!(sent && received),
                    1 => assert!(!sent || kind != Some(0), "nobody took it"),
                    2 => assert!(!received),
                    _ => {}
                }
                assert_eq!(Arc::strong_count(&token), 1);
            }
        }
    });
}

#[test]
fn ends_are_passed_on() {
    fn send(team: Team, sender: Sender<Box<i32>>, number: i32) {
        if number < 10 {
            team.start(move || {
                sender.send(Box::new(number)).unwrap();
                send(team, sender, number + 1);
            });
        }
    }
    fn receive(team: Team, receiver: Receiver<Box<i32>>, number: i32, end: Sender<i32>) {
        team.start(move || match receiver.recv() {
            Ok(message) => {
                assert_eq!(*message, number);
                receive(team, receiver, number + 1, end);
            }
            Err(RecvError) => end.send(number).unwrap(),
        });
    }
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            let (end, result) = channel::bounded(1);
            send(team, sender, 0);
            receive(team, receiver, 0, end);
            assert_eq!(result.recv(), Ok(10));
        }
    });
}

#[test]
fn timeouts_of_shared_channels() {
    everywhere(|_| {
        for kind in [Some(1), None] {
            let (sender, receiver) = open(kind);
            let _clones = (sender.clone(), receiver.clone());
            let start = Instant::now();
            assert_eq!(receiver.recv_timeout(2 * MS), Err(RecvTimeoutError::Timeout));
            assert!(start.elapsed() >= 2 * MS);
            sender.send_timeout(1, MS).unwrap();
            let full = sender.send_timeout(2, MS);
            assert_eq!(full.is_err(), kind == Some(1));
            if let Err(error) = full {
                assert_eq!(error, SendTimeoutError::Timeout(2));
            }
            assert_eq!(receiver.recv_timeout(MS), Ok(1));
        }
    });
}

#[test]
fn short_timeouts_miss_nothing() {
    everywhere(|team| {
        for kind in [Some(0), Some(1), None] {
            let (sender, receiver) = open(kind);
            let count = 60;
            let members: Vec<_> = (0..3)
                .map(|n| {
                    let sender = sender.clone();
                    team.start(move || {
                        for number in 0..count / 3 {
                            if (number + n) % 5 == 0 {
                                // Long enough for the other side to give up in between.
                                sinew::sleep(Duration::from_micros(150));
                            }
                            sender.send(()).unwrap();
                        }
                    })
                })
                .collect();
            drop(sender);
            let mut received = 0;
            loop {
                match receiver.recv_timeout(Duration::from_micros(50)) {
                    Ok(()) => received += 1,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            assert_eq!(received, count);
            members.into_iter().for_each(Member::end);
        }
    });
}

#[test]
fn timeouts_beyond_all_clocks() {
    everywhere(|team| {
        for timeout in [Duration::from_secs(u64::MAX), Duration::MAX] {
            let (sender, receiver) = open(None);
            let member = team.start(move || {
                let first = receiver.recv_timeout(timeout);
                (first, receiver.recv_timeout(timeout))
            });
            member.waits(WaitKind::Receive);
            sender.send(7).unwrap();
            drop(sender);
            assert_eq!(member.end(), (Ok(7), Err(RecvTimeoutError::Disconnected)));
        }
    });
}

#[test]
fn a_lot_on_the_way() {
    const COUNT: usize = 10_000;
    for kind in [Some(COUNT), None] {
        let (sender, receiver) = open(kind);
        (0..COUNT).for_each(|number| sender.send(number).unwrap());
        assert_eq!(receiver.len(), COUNT);
        for expected in 0..COUNT {
            assert_eq!(receiver.recv(), Ok(expected));
        }
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    }
}

#[test]
fn loops_over_messages() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            let (total, result) = open(kind);
            let summing = team.start(move || total.send(receiver.iter().sum::<i32>()).unwrap());
            [3, 1, 2].into_iter().for_each(|number| sender.send(number).unwrap());
            drop(sender);
            assert_eq!(result.recv(), Ok(6));
            summing.end();

            let (sender, receiver) = open(kind);
            let counting = team.start(move || {
                let mut count = 0;
                for number in &receiver {
                    if number >= 3 {
                        break;
                    }
                    count += number;
                }
                // The loop took no more than it saw.
                (count, receiver.recv(), receiver.into_iter().collect::<Vec<_>>())
            });
            [2, 2, 2, 9, 4, 5, 6].into_iter().for_each(|number| sender.send(number).unwrap());
            drop(sender);
            assert_eq!(counting.end(), (6, Ok(4), vec![5, 6]));
        }
        // The messages that are there, and a request for more.
        let (request, requests) = channel::bounded(0);
        let (response, responses) = channel::unbounded();
        let serving = team.start(move || {
            for _ in &requests {
                if response.send(2).is_err() {
                    return;
                }
            }
        });
        let mut sum = 0;
        while sum < 10 {
            request.send(()).unwrap();
            sinew::wait_until(|| !responses.is_empty(), None);
            sum += responses.try_iter().sum::<i32>();
        }
        drop(request);
        serving.end();
        assert_eq!((sum, responses.try_iter().count()), (10, 0));
    });
}

#[test]
fn clones_that_come_late() {
    everywhere(|team| {
        for kind in KINDS {
            // The receiver goes while a clone that was made meanwhile is still there.
            let (sender, receiver) = open(kind);
            let (tell, told) = channel::bounded(0);
            let member = team.start(move || {
                receiver.recv().unwrap();
                drop(receiver);
                tell.send(()).unwrap();
            });
            member.waits(WaitKind::Receive);
            let clone = sender.clone();
            drop(sender);
            clone.send(()).unwrap();
            told.recv().unwrap();
            assert!(clone.is_disconnected());
            member.end();
            // A clone that comes and goes wakes nobody, and closes nothing.
            let (sender, receiver) = open::<()>(kind);
            let member = team.start(move || {
                drop(sender.clone());
                sender
            });
            assert_eq!(receiver.recv_timeout(MS), Err(RecvTimeoutError::Timeout));
            let sender = member.end();
            assert_eq!(receiver.recv_timeout(MS), Err(RecvTimeoutError::Timeout));
            drop(sender);
            assert_eq!(receiver.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
        }
        // Two that answer each other, many times anew.
        for _ in 0..50 {
            let ((to, from), (back, answer)) = (channel::bounded(3), channel::bounded(3));
            let member = team.start(move || {
                let () = from.recv().unwrap();
                back.try_send(()).unwrap();
            });
            to.try_send(()).unwrap();
            answer.recv().unwrap();
            member.end();
        }
    });
}

// One message.

#[test]
fn one_message() {
    everywhere(|team| {
        let (sender, mut receiver) = channel::oneshot();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        sender.send(19_i128).unwrap();
        assert_eq!(receiver.try_recv(), Ok(19));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected), "it was the only one");
        let (sender, receiver) = channel::oneshot();
        sender.send(()).unwrap();
        assert_eq!(receiver.recv(), Ok(()));
        let (sender, receiver) = channel::oneshot();
        sender.send([0xAA_u8; 4096]).unwrap();
        assert_eq!(receiver.recv().unwrap(), [0xAA; 4096]);
        let (sender, mut receiver) = channel::oneshot();
        sender.send(22).unwrap();
        assert_eq!(receiver.recv_timeout(LONG), Ok(22));

        for timed in [false, true] {
            let (sender, mut receiver) = channel::oneshot();
            let member = team.start(move || {
                if timed { receiver.recv_timeout(LONG).ok() } else { receiver.recv().ok() }
            });
            member.waits(WaitKind::Receive);
            sender.send(9).unwrap();
            assert_eq!(member.end(), Some(9));
        }
        // A receiver that has looked and gone, or not yet looked.
        let (sender, mut receiver) = channel::oneshot();
        let member = team.start(move || receiver.try_recv().is_ok());
        let sent = sender.send(42).is_ok();
        assert!(!member.end() || sent);
    });
}

#[test]
fn no_message() {
    everywhere(|team| {
        let (_sender, mut receiver) = channel::oneshot::<u128>();
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        let start = Instant::now();
        assert_eq!(receiver.recv_timeout(2 * MS), Err(RecvTimeoutError::Timeout));
        assert!(start.elapsed() >= 2 * MS);

        let closed = || channel::oneshot::<u128>().1;
        assert_eq!(closed().recv(), Err(RecvError));
        assert_eq!(closed().try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(closed().recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
        let (sender, receiver) = channel::oneshot::<u128>();
        let member = team.start(move || receiver.recv());
        member.waits(WaitKind::Receive);
        drop(sender);
        assert_eq!(member.end(), Err(RecvError));
    });
}

#[test]
fn a_message_that_nobody_wanted() {
    // Not `Send`, which only matters to those who use threads.
    let token = Rc::new(AtomicBool::new(false));
    let (sender, receiver) = channel::oneshot();
    sender.send(token.clone()).unwrap();
    assert_eq!(Rc::strong_count(&token), 2);
    drop(receiver);
    assert_eq!(Rc::strong_count(&token), 1);
    let (sender, receiver) = channel::oneshot();
    drop(receiver);
    assert!(sender.is_disconnected());
    let refused = sender.send(token.clone()).unwrap_err();
    assert!(Rc::ptr_eq(&refused, &token));
    assert_eq!(Rc::strong_count(&token), 2);
    drop(refused);
    assert_eq!(Rc::strong_count(&token), 1);
}

#[test]
fn deadlines_that_have_passed() {
    let (sender, receiver) = channel::bounded(1);
    let passed = Instant::now();
    assert_eq!(receiver.recv_deadline(passed), Err(RecvTimeoutError::Timeout));
    // What can be done at once is done all the same.
    assert_eq!(sender.send_deadline(1, passed), Ok(()));
    assert_eq!(sender.send_deadline(2, passed), Err(SendTimeoutError::Timeout(2)));
    assert_eq!(receiver.recv_deadline(passed), Ok(1));
    drop(sender);
    assert_eq!(receiver.recv_deadline(passed), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn signals_go_through_a_panic() {
    fn check<T: RefUnwindSafe + std::panic::UnwindSafe>() {}
    check::<Barrier>();
    check::<Condvar>();
    check::<sinew::sync::Semaphore>();
    check::<sinew::sync::Futex>();
}

#[test]
fn once_locks_are_compared() {
    let (one, other) = (OnceLock::new(), OnceLock::new());
    assert_eq!(one, other);
    one.set(1).unwrap();
    assert_ne!(one, other);
    other.set(1).unwrap();
    assert_eq!(one, other);
    assert_ne!(one, OnceLock::from(2));
}
