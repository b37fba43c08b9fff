//! Locks.

use crate::caught;
use crate::team::{Member, Team, everywhere};
use sinew::WaitKind;
use sinew::sync::{
    Barrier, MappedMutexGuard, MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, MutexGuard,
    RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::sync::Arc;

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

        // Children of a scope borrow the lock.
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

    // A guard of a part can be used for a shorter lifetime, too.
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
            // Once more on one stack.
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
        // Both locks are held when the destructor runs, so it has to wait.
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
        // The readers meet at a barrier while they hold the lock.
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
fn a_downgraded_guard_reads_the_written_value() {
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
fn no_writer_comes_between_a_write_and_its_downgrade() {
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
