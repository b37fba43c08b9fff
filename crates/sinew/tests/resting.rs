//! Fibers of `spawn_whenever_readable`, which run whenever their source is readable and rest in
//! between.

use crate::backends::{all, connected, on_each, on_each_with};
use sinew::WaitKind::Readable;
use sinew::net::TcpStream;
use sinew::sync::channel::unbounded;
use sinew::{Builder, ContextSlot, JoinHandle, Runtime, State};
use sinew_testkit::{Log, Seed, watch};
use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::ops::ControlFlow::{self, Break, Continue};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::ThreadId;
use std::time::Duration;

mod backends;

fn on(runtime: &Runtime) -> Builder {
    Builder::new().runtime(runtime.handle())
}

/// One call of a fiber that reads the available bytes.
fn read_some(stream: &mut TcpStream) -> ControlFlow<std::io::Result<()>, Vec<u8>> {
    let mut buffer = [0; 16];
    match stream.read(&mut buffer) {
        Ok(0) => Break(Ok(())),
        Ok(count) => Continue(buffer[..count].to_vec()),
        Err(error) => Break(Err(error)),
    }
}

/// Starts a fiber that answers each byte with `answer`, and ends with the connection.
fn answering(
    builder: Builder,
    stream: TcpStream,
    mut answer: impl FnMut() -> u8 + Send + 'static,
) -> JoinHandle<std::io::Result<()>> {
    let serve = move |stream: &mut TcpStream| {
        let read = read_some(stream)?;
        for _ in read {
            stream.write_all(&[answer()]).unwrap();
        }
        Continue(())
    };
    builder.spawn_whenever_readable(stream, serve).unwrap()
}

/// Sends a byte, and returns the answer.
fn ask(mut client: &TcpStream) -> u8 {
    client.write_all(b"?").unwrap();
    let mut answer = [0];
    client.read_exact(&mut answer).unwrap();
    answer[0]
}

fn until_it_rests<T>(fiber: &JoinHandle<T>) {
    backends::until_it_waits(fiber);
}

#[test]
fn a_resting_fiber_keeps_its_identity() {
    on_each(|runtime| {
        for inside in [true, false] {
            let (one, other) = connected();
            let (sender, ids) = unbounded();
            let mut count = 0;
            let answer = move || {
                let me = sinew::current();
                assert_eq!(me.name(), Some("resting"));
                sender.send(me.id()).unwrap();
                count += 1;
                count
            };
            let builder = on(runtime).name("resting");
            let start = move || answering(builder, other, answer);
            let fiber = if inside { runtime.run(start) } else { start() };
            for count in 1..=20 {
                assert_eq!(ask(&one), count);
                assert_eq!(ids.recv().unwrap(), fiber.fiber().id());
            }
            drop(one);
            fiber.join().unwrap().unwrap();
        }
    });
}

/// There is one stack, which all these fibers and another one use one after the other.
#[test]
fn no_stack_is_needed_while_a_fiber_rests() {
    let _watch = watch::a_minute();
    for backend in all() {
        let builder = Runtime::builder().carriers(1).max_stacks(1).backend(backend);
        let runtime = builder.build().unwrap();
        let (clients, fibers): (Vec<_>, Vec<_>) = (0..20)
            .map(|index| {
                let (one, other) = connected();
                (one, answering(on(&runtime), other, move || index))
            })
            .unzip();
        for _ in 0..10 {
            for (index, client) in clients.iter().enumerate() {
                assert_eq!(usize::from(ask(client)), index);
            }
            // A fiber still uses its stack when its answer arrives.
            fibers.iter().for_each(until_it_rests);
            runtime.run(|| sinew::sleep(Duration::from_micros(10)));
        }
        drop(clients);
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap().unwrap());
    }
}

#[test]
fn unread_bytes_cause_the_next_call() {
    on_each(|runtime| {
        let (mut one, other) = connected();
        one.write_all(b"all of this").unwrap();
        let mut text = Vec::new();
        let read = move |stream: &mut TcpStream| {
            let mut byte = [0];
            match stream.read(&mut byte).unwrap() {
                0 => Break(std::mem::take(&mut text)),
                _ => {
                    text.push(byte[0]);
                    Continue(())
                }
            }
        };
        let fiber = on(runtime).spawn_whenever_readable(other, read).unwrap();
        one.write_all(b" and that").unwrap();
        drop(one);
        assert_eq!(fiber.join().unwrap(), b"all of this and that");
    });
}

/// Each call also waits for other events.
#[test]
fn a_call_may_wait() {
    on_each(|runtime| {
        let (one, other) = connected();
        let (requests, asked) = unbounded();
        let (answers, told) = unbounded();
        let answer = move || {
            requests.send(()).unwrap();
            sinew::sleep(Duration::from_micros(10));
            told.recv().unwrap()
        };
        let fiber = answering(on(runtime), other, answer);
        let helper = runtime.spawn(move || {
            for number in 0..10 {
                asked.recv().unwrap();
                answers.send(number).unwrap();
            }
        });
        for number in 0..10 {
            assert_eq!(ask(&one), number);
        }
        helper.join().unwrap();
        drop(one);
        fiber.join().unwrap().unwrap();
    });
}

#[test]
fn a_fiber_cancelled_while_it_rests_drops_its_source_and_is_not_called_again() {
    on_each(|runtime| {
        for before in [0, 3] {
            for inside in [true, false] {
                let log = Log::new();
                let (mut one, other) = connected();
                let (theirs, dropped) = (log.clone(), log.on_drop("closure dropped"));
                let answer = move || {
                    let _kept = &dropped;
                    theirs.line("called");
                    0
                };
                let fiber = answering(on(runtime), other, answer);
                for _ in 0..before {
                    ask(&one);
                    assert_eq!(log.take(), ["called"]);
                }
                let cancel = move || {
                    until_it_rests(&fiber);
                    fiber.cancel();
                    assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
                };
                if inside {
                    runtime.run(cancel);
                } else {
                    cancel();
                }
                assert_eq!(log.take(), ["closure dropped"]);
                assert_eq!(one.read(&mut [0]).unwrap(), 0, "the source was dropped");
            }
        }
    });
}

/// A call that computes does not notice the cancellation, but the fiber does not rest again.
#[test]
fn a_fiber_cancelled_while_it_runs_does_not_rest() {
    on_each(|runtime| {
        for waits in [true, false] {
            let (mut one, other) = connected();
            let (running, cancelled) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (begun, go_on) = (running.clone(), cancelled.clone());
            let mut calls = 0;
            let serve = move |stream: &mut TcpStream| -> ControlFlow<()> {
                calls += 1;
                assert_eq!(calls, 1);
                let _ = stream.read(&mut [0]).unwrap();
                begun.store(true, SeqCst);
                if waits {
                    sinew::park();
                    unreachable!("nobody wakes it");
                }
                while !go_on.load(SeqCst) {
                    std::hint::spin_loop();
                }
                Continue(())
            };
            let fiber = on(runtime).spawn_whenever_readable(other, serve).unwrap();
            one.write_all(b"xy").unwrap();
            while !running.load(SeqCst) {
                std::thread::yield_now();
            }
            fiber.cancel();
            cancelled.store(true, SeqCst);
            assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
            assert_ne!(
                one.read(&mut [0]).map_err(|error| error.kind()),
                Err(ErrorKind::WouldBlock)
            );
        }
    });
}

thread_local!(static NAMES: RefCell<Vec<Rc<ThreadId>>> = const { RefCell::new(Vec::new()) });

/// A value that checks that it does not change threads.
struct Bound(Rc<ThreadId>, Log);

impl Bound {
    fn new(log: Log) -> Bound {
        let id = Rc::new(std::thread::current().id());
        NAMES.with_borrow_mut(|names| names.push(id.clone()));
        Bound(id, log)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        assert_eq!(*self.0, std::thread::current().id());
        self.1.line("dropped");
        // The destructor of a local may take its time.
        sinew::yield_now();
    }
}

sinew::fiber_local! {
    static BOUND: RefCell<Option<Bound>> = RefCell::new(None);
    inherit static GIVEN: u32 = 0;
}

#[test]
fn locals_are_dropped_where_they_were_made() {
    on_each(|runtime| {
        let log = Log::new();
        let (one, other) = connected();
        let theirs = log.clone();
        let answer = move || {
            BOUND.with(|bound| {
                assert!(bound.borrow().is_none(), "it has rested");
                *bound.borrow_mut() = Some(Bound::new(theirs.clone()));
            });
            GIVEN.get() as u8
        };
        let fiber = answering(on(runtime).local(&GIVEN, 7), other, answer);
        // The initial value of a local is dropped with the others.
        for expected in [7, 0, 0, 0] {
            assert_eq!(ask(&one), expected);
            until_it_rests(&fiber);
            assert_eq!(log.take(), ["dropped"]);
        }
        drop(one);
        fiber.join().unwrap().unwrap();
    });
}

#[test]
fn a_panic_ends_a_resting_fiber() {
    struct Panics(i32);
    impl Drop for Panics {
        fn drop(&mut self) {
            resume_unwind(Box::new(self.0));
        }
    }
    sinew::fiber_local!(static LOCAL: RefCell<Option<Panics>> = RefCell::new(None));
    on_each(|runtime| {
        // In a call.
        let (mut one, other) = connected();
        let fiber = on(runtime)
            .spawn_whenever_readable(other, |_| -> ControlFlow<()> { resume_unwind(Box::new(7)) });
        one.write_all(b"x").unwrap();
        assert_eq!(*fiber.unwrap().join().unwrap_err().downcast::<i32>().unwrap(), 7);
        // In the destructor of a value that the closure owns, at the end.
        let (mut one, other) = connected();
        let panics = Panics(8);
        let fiber = on(runtime).spawn_whenever_readable(other, move |_| {
            let _kept = &panics;
            Break(())
        });
        one.write_all(b"x").unwrap();
        assert_eq!(*fiber.unwrap().join().unwrap_err().downcast::<i32>().unwrap(), 8);
        // In the destructor of a local, when the fiber rests: no joiner can get the panic, and the
        // fiber goes on.
        let (one, other) = connected();
        let fiber = answering(on(runtime), other, || {
            LOCAL.with(|local| *local.borrow_mut() = Some(Panics(9)));
            1
        });
        assert_eq!((ask(&one), ask(&one)), (1, 1));
        drop(one);
        fiber.join().unwrap().unwrap();
    });
}

/// A destructor that waits is cancelled in its wait, in the closure and in the result.
#[test]
fn a_cancelled_end_drops_everything() {
    struct Waits(Arc<AtomicUsize>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
            sinew::sleep(Duration::from_micros(10));
        }
    }
    on_each(|runtime| {
        let (mut one, other) = connected();
        let dropped = Arc::new(AtomicUsize::new(0));
        let (captured, made) = (Waits(dropped.clone()), dropped.clone());
        let serve = move |_: &mut TcpStream| {
            let _captured = &captured;
            sinew::current().cancel();
            Break(Waits(made.clone()))
        };
        let fiber = on(runtime).spawn_whenever_readable(other, serve).unwrap();
        one.write_all(b"x").unwrap();
        let _ = fiber.join();
        assert_eq!(dropped.load(SeqCst), 2);
    });
}

thread_local!(static STATE: Cell<u32> = const { Cell::new(0) });

static SLOT: ContextSlot<u32> = ContextSlot::new(|value| *value = STATE.replace(*value));

/// A first-class fiber that stays suspended inside of a slot does not keep the slot's state.
#[test]
fn slots_are_left_where_they_were_entered() {
    on_each_with(1, |runtime| {
        let (one, other) = connected();
        let mut calls = 0;
        let answer = move || {
            calls += 1;
            if calls == 1 {
                let suspended = sinew_context::Fiber::new(|caller| {
                    SLOT.enter(7, || caller.resume()).0.expect("nobody resumes it")
                });
                // The first-class fiber neither continues nor is unwound: its stack is lost.
                std::mem::forget(suspended.unwrap().resume());
                STATE.set(5);
            } else {
                // Other fibers see the state from before.
                SLOT.enter(1, || {
                    let theirs = sinew::spawn_local(|| STATE.get()).join();
                    assert_eq!((theirs.unwrap(), STATE.get()), (5, 1));
                });
            }
            calls
        };
        let fiber = answering(on(runtime), other, answer);
        assert_eq!([ask(&one), ask(&one), ask(&one)], [1, 2, 3]);
        drop(one);
        fiber.join().unwrap().unwrap();
    });
}

/// A caught panic is dropped with the rest of the call, and so are the locals that its destructor
/// makes.
#[test]
fn locals_made_by_a_destructor_are_dropped() {
    static SWAPS: AtomicUsize = AtomicUsize::new(0);
    static PANICS: ContextSlot<u32> = ContextSlot::new(|_| {
        // The hook runs when the fiber continues after its wait.
        if SWAPS.fetch_add(1, SeqCst) == 2 {
            std::panic::panic_any(Makes);
        }
    });
    struct Makes;
    impl Drop for Makes {
        fn drop(&mut self) {
            LATE.with(|late| late.set(true));
        }
    }
    sinew::fiber_local!(static LATE: Cell<bool> = Cell::new(false));
    on_each(|runtime| {
        SWAPS.store(0, SeqCst);
        let (mut one, other) = connected();
        let (waiting, waits) = unbounded();
        let mut calls = 0;
        let serve = move |stream: &mut TcpStream| {
            calls += 1;
            assert!(!LATE.with(Cell::get), "a local of the call before");
            assert_eq!(stream.read(&mut [0]).unwrap(), 1);
            if calls == 2 {
                return Break(());
            }
            waiting.send(()).unwrap();
            let _ = catch_unwind(AssertUnwindSafe(|| PANICS.enter(0, || stream.read(&mut [0]))));
            Continue(())
        };
        let fiber = on(runtime).spawn_whenever_readable(other, serve).unwrap();
        one.write_all(b"x").unwrap();
        waits.recv().unwrap();
        // A read may yield first without waiting: then the panic comes at that point.
        let handle = fiber.fiber();
        sinew::wait_until(|| handle.waits_for().is_some(), None);
        // The byte is read, or left to the next call if the panic is raised before.
        one.write_all(b"yz").unwrap();
        fiber.join().unwrap();
    });
}

#[test]
fn a_runtime_that_ends_cancels_its_resting_fibers() {
    let _watch = watch::a_minute();
    for backend in all() {
        for carriers in [1, 2] {
            let runtime = Runtime::builder().carriers(carriers).backend(backend).build().unwrap();
            let (clients, fibers): (Vec<_>, Vec<_>) = (0..50)
                .map(|index| {
                    let (one, other) = connected();
                    let fiber = answering(on(&runtime), other, || 0);
                    // Some fibers have run before.
                    if index % 2 == 0 {
                        ask(&one);
                    }
                    (one, fiber)
                })
                .unzip();
            runtime.shutdown_timeout(Duration::from_secs(20)).unwrap();
            for (mut client, fiber) in clients.into_iter().zip(fibers) {
                assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
                assert_eq!(client.read(&mut [0]).unwrap(), 0, "the source was dropped");
            }
        }
    }
}

/// The carrier that watches the source is busy. Another carrier takes the fiber over, unless only
/// the busy one can see the event.
#[test]
fn an_idle_carrier_takes_over_a_resting_fiber() {
    on_each_with(2, |runtime| {
        if runtime.handle().name().starts_with("Uring") {
            return;
        }
        let (one, other) = connected();
        let fiber = answering(on(runtime), other, || sinew::current_carrier().unwrap() as u8);
        let first = ask(&one);
        let go_on = Arc::new(AtomicBool::new(false));
        let seen = go_on.clone();
        let (begun, begins) = unbounded();
        let keeper = on(runtime).carrier(first.into()).spawn(move || {
            begun.send(()).unwrap();
            while !seen.load(SeqCst) {
                std::hint::spin_loop();
            }
        });
        begins.recv().unwrap();
        // Give the other carrier work, so that it watches its neighbour from then on.
        runtime.run(|| ());
        assert_eq!(ask(&one), 1 - first);
        go_on.store(true, SeqCst);
        keeper.unwrap().join().unwrap();
        drop(one);
        fiber.join().unwrap().unwrap();
    });
}

#[test]
fn settings_hold_for_every_call() {
    on_each_with(2, |runtime| {
        for carrier in [0, 1] {
            let (one, other) = connected();
            let carrier_of = || sinew::current_carrier().unwrap() as u8;
            let fiber = answering(on(runtime).carrier(carrier), other, carrier_of);
            (0..10).for_each(|_| assert_eq!(usize::from(ask(&one)), carrier));
            drop(one);
            fiber.join().unwrap().unwrap();
        }
        let (one, other) = connected();
        let fiber = answering(on(runtime).stack_size(1 << 20), other, || {
            // The sanitizer keeps locals outside of the stack, so the depth of the stack cannot be
            // measured.
            if !cfg!(sinew_asan) {
                sinew_testkit::stack::burn(700 << 10);
            }
            1
        });
        (0..3).for_each(|_| assert_eq!(ask(&one), 1));
        drop(one);
        fiber.join().unwrap().unwrap();
        let (_one, other) = connected();
        let none = |_: &mut TcpStream| Break(());
        assert!(on(runtime).carrier(2).spawn_whenever_readable(other, none).is_err());
    });
}

#[test]
fn a_migratable_fiber_moves_while_it_runs_and_rests_in_between() {
    on_each(|runtime| {
        let (one, other) = connected();
        // SAFETY: nothing that belongs to a thread lives across a wait.
        let builder = unsafe { on(runtime).migratable() };
        let fiber = answering(builder, other, || {
            (0..20).for_each(|_| sinew::yield_now());
            1
        });
        (0..50).for_each(|_| assert_eq!(ask(&one), 1));
        until_it_rests(&fiber);
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    });
}

/// The next call gets the source with which the previous call replaced the first.
#[test]
fn a_source_may_be_replaced() {
    on_each(|runtime| {
        let ((mut one, other), (mut another, next)) = (connected(), connected());
        let mut next = Some(next);
        let serve = move |stream: &mut TcpStream| match next.take() {
            Some(next) => {
                *stream = next;
                Continue(())
            }
            None => Break(stream.read(&mut [0; 8]).unwrap()),
        };
        let fiber = on(runtime).spawn_whenever_readable(other, serve).unwrap();
        one.write_all(b"x").unwrap();
        assert_eq!(one.read(&mut [0]).map_err(|error| error.kind()).unwrap_or(0), 0);
        another.write_all(b"hello").unwrap();
        assert_eq!(fiber.join().unwrap(), 5);
    });
}

#[test]
fn closing_the_source_calls_a_resting_fiber() {
    on_each(|runtime| {
        let (_one, other) = connected();
        let other = Arc::new(other);
        let serve = |stream: &mut Arc<TcpStream>| match (&**stream).read(&mut [0]) {
            Ok(1) => Continue(()),
            result => Break(result.map_err(|error| error.kind())),
        };
        let fiber = on(runtime).spawn_whenever_readable(other.clone(), serve).unwrap();
        other.close().unwrap();
        assert_eq!(fiber.join().unwrap(), Err(ErrorKind::NotConnected));
        let fiber = on(runtime).spawn_whenever_readable(other, serve).unwrap();
        assert_eq!(fiber.join().unwrap(), Err(ErrorKind::NotConnected));
    });
}

/// A joiner may be on the carrier where the fiber runs when it begins to wait, and time out when
/// the fiber is elsewhere.
#[test]
fn a_resting_fiber_is_joined_wherever_it_ends() {
    on_each_with(2, |runtime| {
        let (one, other) = connected();
        let fiber = answering(on(runtime), other, || 1);
        let joiner = runtime.spawn(move || {
            let mut fiber = fiber;
            let mut tries = 0_u32;
            loop {
                match fiber.join_timeout(Duration::from_micros(50)) {
                    Ok(result) => return (result.unwrap().unwrap(), tries).1,
                    Err(again) => fiber = again,
                }
                tries += 1;
            }
        });
        let asker = std::thread::spawn(move || (0..500).for_each(|_| assert_eq!(ask(&one), 1)));
        asker.join().unwrap();
        joiner.join().unwrap();
    });
}

#[test]
fn a_snapshot_shows_a_resting_fiber() {
    on_each(|runtime| {
        let (one, other) = connected();
        let fiber = answering(on(runtime).name("seen"), other, || 1);
        ask(&one);
        until_it_rests(&fiber);
        let info =
            sinew::inspect::fibers().into_iter().find(|info| info.id() == fiber.fiber().id());
        let info = info.expect("it is among all");
        assert_eq!((info.name(), info.state), (Some("seen"), State::Suspended));
        let wait = info.wait.as_ref().expect("it says what it waits for");
        assert_eq!((wait.kind, fiber.fiber().waits_for()), (Readable, Some(Readable)));
        assert_eq!(fiber.fiber().backtrace().unwrap().to_string(), "");
        drop(one);
        fiber.join().unwrap().unwrap();
    });
}

/// Data, the end of the stream, a cancellation and a close come at the same time, between calls and
/// within them.
#[test]
fn every_resting_fiber_ends_or_is_cancelled() {
    const FIBERS: usize = 60;
    let mut seed = Seed::from_env();
    let seed = RefCell::new(&mut seed);
    on_each(|runtime| {
        let mut seed = seed.borrow_mut().fork();
        let dropped = Arc::new(AtomicUsize::new(0));
        struct Counts(Arc<AtomicUsize>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let mut all = Vec::new();
        for _ in 0..FIBERS {
            let (one, other) = connected();
            let counts = Counts(dropped.clone());
            let mut chance = seed.fork();
            let serve = move |stream: &mut TcpStream| {
                let _counts = &counts;
                let count = read_some(stream)?.len();
                match chance.below(4) {
                    0 => sinew::yield_now(),
                    1 => BOUND.with(|bound| *bound.borrow_mut() = Some(Bound::new(Log::new()))),
                    2 => sinew::sleep(Duration::from_micros(5)),
                    _ => {}
                }
                stream.write_all(&[0; 16][..count]).map_or_else(|error| Break(Err(error)), Continue)
            };
            let fiber = on(runtime).spawn_whenever_readable(other, serve).unwrap();
            let mut chance = seed.fork();
            let client = runtime.spawn(move || {
                for _ in 0..chance.below(50) {
                    (0..chance.below(300)).for_each(|_| std::hint::spin_loop());
                    let sent = (&one).write(&[0; 3][..1 + chance.below(3)]);
                    if sent.is_err()
                        || chance.below(2) == 0 && !matches!((&one).read(&mut [0; 9]), Ok(1..))
                    {
                        return;
                    }
                }
            });
            let handle = fiber.fiber();
            let mut chance = seed.fork();
            let canceller = std::thread::spawn(move || {
                (0..chance.below(20_000)).for_each(|_| std::hint::spin_loop());
                if chance.below(2) == 0 {
                    handle.cancel();
                }
            });
            all.push((fiber, client, canceller));
        }
        for (fiber, client, canceller) in all {
            canceller.join().unwrap();
            client.join().unwrap();
            if let Err(payload) = fiber.join() {
                assert!(sinew::is_cancel(&*payload));
            }
        }
        assert_eq!(dropped.load(SeqCst), FIBERS);
    });
}

/// One fiber reads whenever there is data, and another writes all the time. Each rest registers
/// with the kernel anew, and must not forget the waiting writer.
#[test]
fn a_writer_goes_on_beside_a_resting_reader() {
    const PAIRS: usize = 16;
    const BLOCKS: usize = 300;
    on_each_with(2, |runtime| {
        let clients = Runtime::builder().carriers(1).build().unwrap();
        let writers: Vec<_> = (0..PAIRS)
            .map(|_| {
                let (one, other) = connected();
                let (one, other) = (Arc::new(one), Arc::new(other));
                let reads = |stream: &mut Arc<TcpStream>| match (&**stream).read(&mut [0; 1]) {
                    Ok(1) => Continue(()),
                    _ => Break(()),
                };
                drop(on(runtime).spawn_whenever_readable(other.clone(), reads).unwrap());
                let (reader, writer) = (one.clone(), one);
                drop(clients.spawn(move || {
                    let mut buffer = vec![0; 1 << 14];
                    while let Ok(1..) = (&*reader).read(&mut buffer) {}
                }));
                drop(clients.spawn(move || {
                    while (&*writer).write_all(b"some bytes").is_ok() {
                        sinew::yield_now();
                    }
                }));
                runtime.spawn(move || {
                    let block = [0; 1 << 16];
                    (0..BLOCKS).for_each(|_| (&*other).write_all(&block).unwrap());
                    let _ = other.shutdown(std::net::Shutdown::Both);
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
    });
}

/// A poller that no carrier uses any more watches nothing.
#[test]
fn a_runtime_that_was_abandoned_keeps_no_descriptor_from_others() {
    let _watch = watch::a_minute();
    for backend in all() {
        for births in [false, true] {
            let runtime = Runtime::builder().carriers(4).backend(backend).build().unwrap();
            let (mut one, other) = connected();
            let other = Arc::new(other);
            let (begun, go_on) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (told, may) = (begun.clone(), go_on.clone());
            let shared = other.clone();
            let serve = move |stream: &mut Arc<TcpStream>| {
                let _ = (&**stream).read(&mut [0; 1]);
                told.store(true, SeqCst);
                // Block the thread, so that the runtime cannot end.
                while !may.load(SeqCst) {
                    std::thread::yield_now();
                }
                if births {
                    drop(sinew::spawn_whenever_readable(shared.clone(), |_| Break(())));
                    return Break(());
                }
                Continue(())
            };
            let fiber = on(&runtime).spawn_whenever_readable(other.clone(), serve).unwrap();
            one.write_all(b"x").unwrap();
            while !begun.load(SeqCst) {
                std::thread::yield_now();
            }
            runtime.shutdown_timeout(Duration::from_millis(20)).unwrap_err();
            go_on.store(true, SeqCst);
            let _ = fiber.join();
            // Another runtime continues with the socket.
            let second = Runtime::builder().carriers(1).backend(backend).build().unwrap();
            let reader = second.spawn(move || (&*other).read(&mut [0; 1]).unwrap());
            until_it_rests(&reader);
            one.write_all(b"y").unwrap();
            assert_eq!(reader.join().unwrap(), 1, "{backend:?} {births}");
        }
    }
}
