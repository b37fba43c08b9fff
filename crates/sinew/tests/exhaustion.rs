//! Limits of the process: addresses, descriptors, threads; and of a runtime: stacks.
//!
//! A case that sets a limit of the process runs in a separate process.

use sinew::Runtime;
use sinew::sync::Mutex;
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::io;
use std::sync::Arc;

fn set_limit(which: libc::__rlimit_resource_t, value: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: valid limits for this process; the hard limit stays, so that the limit can be raised
    // again.
    unsafe {
        assert_eq!(libc::getrlimit(which, &mut limit), 0);
        limit.rlim_cur = value.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(which, &limit), 0);
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn works(runtime: &Runtime) -> bool {
    runtime.spawn(|| 7).join().unwrap() == 7
}

#[test]
fn building_a_runtime_without_descriptors_fails_and_leaks_nothing() {
    child("building_a_runtime_without_descriptors_fails_and_leaks_nothing", || {
        let other = Runtime::builder().carriers(1).build().unwrap();
        // Each carrier needs a descriptor; the numbers below the limit may be in use already.
        set_limit(libc::RLIMIT_NOFILE, 7);
        assert!(Runtime::builder().carriers(8).build().is_err());
        set_limit(libc::RLIMIT_NOFILE, 1000);
        let before = open_descriptors();
        set_limit(libc::RLIMIT_NOFILE, 7);
        for _ in 0..20 {
            let error = Runtime::builder().carriers(8).build().unwrap_err();
            let text = error.to_string();
            assert!(text.contains("of 8") && text.contains("ulimit -n"), "{text}");
            assert!(works(&other));
        }
        set_limit(libc::RLIMIT_NOFILE, 1000);
        // The resources of the first attempt are kept for later, and not taken again.
        assert_eq!(open_descriptors(), before);
        let runtime = Runtime::builder().carriers(8).build().unwrap();
        assert!(works(&runtime));
    })
    .assert_success();
}

#[test]
fn building_a_runtime_without_threads_fails_and_others_go_on() {
    child("building_a_runtime_without_threads_fails_and_others_go_on", || {
        // SAFETY: no preconditions. The limit applies to ordinary users; root is exempt.
        if unsafe { libc::getuid() } == 0 && unsafe { libc::setuid(65_534) } != 0 {
            println!("skipped: cannot become an ordinary user");
            return;
        }
        let other = Runtime::builder().carriers(2).build().unwrap();
        set_limit(libc::RLIMIT_NPROC, 0);
        for _ in 0..20 {
            let error = Runtime::builder().carriers(3).build().unwrap_err();
            assert!(error.to_string().contains("ulimit -u"), "{error}");
            assert!(works(&other));
        }
        set_limit(libc::RLIMIT_NPROC, u64::MAX);
        assert!(works(&Runtime::builder().carriers(3).build().unwrap()));
    })
    .assert_success();
}

#[test]
fn without_addresses_fibers_end_with_the_error_and_the_others_go_on() {
    let outcome = child("without_addresses_fibers_end_with_the_error_and_the_others_go_on", || {
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        assert!(works(&runtime));
        set_limit(libc::RLIMIT_AS, 512 << 20);
        let fibers: Vec<_> = (0..5000).map(|_| runtime.spawn(sinew::park)).collect();
        // Each fiber either waits, or has ended because there was no stack for it.
        let failed = loop {
            let ended: Vec<_> = fibers.iter().filter(|fiber| fiber.is_finished()).collect();
            let waiting = fibers
                .iter()
                .filter(|fiber| fiber.fiber().state() == sinew::FiberState::Suspended)
                .count();
            if ended.len() + waiting == fibers.len() {
                break ended.len();
            }
            std::thread::yield_now();
        };
        assert!(failed > 0 && failed < fibers.len(), "{failed}");
        let mut refused = 0;
        for fiber in fibers {
            fiber.fiber().unpark();
            if let Err(payload) = fiber.join() {
                let error = payload.downcast::<io::Error>().unwrap();
                assert!(error.to_string().contains("ulimit -v"), "{error}");
                refused += 1;
            }
        }
        assert_eq!(refused, failed);
        // The stacks of fibers that have ended serve the next ones.
        assert!(works(&runtime));
        let again: Vec<_> = (0..200).map(|n| runtime.spawn(move || n)).collect();
        assert_eq!(again.into_iter().map(|fiber| fiber.join().unwrap()).sum::<i32>(), 19_900);
    });
    outcome.assert_success();
    assert!(outcome.stderr.contains("ends before it began"), "{outcome:#?}");
}

/// Takes a lock when it is dropped, and counts that.
struct LocksOnDrop(Arc<Mutex<u32>>);

impl Drop for LocksOnDrop {
    fn drop(&mut self) {
        *self.0.lock() += 1;
    }
}

/// Fibers without a stack end one after the other on a reserve stack. So a destructor that waits
/// for a suspended fiber does not block the carrier.
#[test]
fn closures_of_fibers_without_a_stack_may_wait_when_they_are_dropped() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).max_stacks(2).build().unwrap();
    let count = runtime.run(|| {
        let lock = Arc::new(Mutex::new(0));
        let theirs = lock.clone();
        let holder = sinew::spawn_local(move || {
            let _guard = theirs.lock();
            sinew::park();
        });
        while holder.fiber().waits_for().is_none() {
            sinew::yield_now();
        }
        let refused = [0; 5].map(|_| {
            let value = LocksOnDrop(lock.clone());
            sinew::spawn(move || drop(value))
        });
        while refused[0].fiber().waits_for() != Some(sinew::WaitKind::Lock) {
            sinew::yield_now();
        }
        holder.fiber().unpark();
        holder.join().unwrap();
        // The first fiber was refused. The others may get the stack that the holder has left.
        for (n, fiber) in refused.into_iter().enumerate() {
            match fiber.join() {
                Ok(()) => assert!(n > 0),
                Err(payload) => assert!(payload.is::<io::Error>()),
            }
        }
        *lock.lock()
    });
    assert_eq!(count, 5);
}

/// If the destructor of a fiber without a stack panics, the panic is the fiber's result.
#[test]
fn a_closure_of_a_fiber_without_a_stack_may_panic_when_it_is_dropped() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            sinew::yield_now();
            panic!("on purpose");
        }
    }
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).max_stacks(1).build().unwrap();
    runtime.run(|| {
        for _ in 0..3 {
            let value = Panics;
            let payload = sinew::spawn(move || drop(value)).join().unwrap_err();
            assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
        }
    });
}
