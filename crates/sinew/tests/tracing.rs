//! Traces of the work of carriers.

use sinew::RuntimeHandle;
use sinew::inspect::{Trace, TraceEvent, TraceKind, WokenBy};
use sinew::sync::{Baton, channel};
use sinew::{FiberBuilder, FiberId, Runtime, WaitKind};
use sinew_testkit::watch;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Returns the events of one fiber without its yields: tests may be built with additional yields.
fn of(events: &[TraceEvent], id: FiberId) -> Vec<TraceKind> {
    let about = |kind: &TraceKind| {
        matches!(*kind,
            TraceKind::Start { fiber, .. }
            | TraceKind::Wait { fiber, .. }
            | TraceKind::Yield { fiber }
            | TraceKind::End { fiber } if fiber == id)
    };
    let all: Vec<_> = events.iter().map(|event| event.kind).filter(about).collect();
    let is_yield = |index: usize| matches!(all.get(index), Some(TraceKind::Yield { .. }));
    let after_one = |index: usize| index > 0 && is_yield(index - 1);
    let kept = (0..all.len()).filter(|&index| !is_yield(index) && !after_one(index));
    kept.map(|index| all[index]).collect()
}

/// Returns all events once the end of a fiber is among them: its joiner may continue earlier.
fn events_to_the_end(trace: &Trace, id: FiberId) -> Vec<TraceEvent> {
    let is_end = |event: &TraceEvent| event.kind == TraceKind::End { fiber: id };
    sinew::wait_until(|| trace.events().iter().any(is_end));
    trace.events()
}

/// Checks that the events of each carrier and of each fiber could have happened in that order.
fn check(events: &[TraceEvent]) {
    assert!(events.is_sorted_by_key(|event| event.at));
    let mut carriers: HashMap<usize, Option<FiberId>> = HashMap::new();
    for event in events {
        let running = match (carriers.get_mut(&event.carrier), event.kind) {
            (Some(running), _) => running,
            // Earlier events are not kept.
            (None, TraceKind::Steal { .. }) => continue,
            (None, TraceKind::Start { fiber, .. }) => {
                carriers.insert(event.carrier, Some(fiber));
                continue;
            }
            (None, _) => {
                carriers.insert(event.carrier, None);
                continue;
            }
        };
        match event.kind {
            TraceKind::Start { fiber, woken } => {
                assert_eq!(*running, None, "{event:?}");
                *running = Some(fiber);
                if let Some((when, _)) = woken {
                    assert!(when <= event.at, "{event:?}");
                }
            }
            TraceKind::Wait { fiber, .. }
            | TraceKind::Yield { fiber }
            | TraceKind::End { fiber } => {
                assert_eq!(running.take(), Some(fiber), "{event:?}");
            }
            TraceKind::Sleep | TraceKind::Awake => assert_eq!(*running, None, "{event:?}"),
            TraceKind::Steal { victim, count } => {
                assert_ne!(victim, event.carrier);
                assert!(count > 0);
            }
            other => panic!("{other:?} is not known here"),
        }
    }
}

/// Starts a fiber and returns when it has parked.
fn spawn_parked() -> sinew::JoinHandle<()> {
    let fiber = sinew::spawn(sinew::park);
    sinew::wait_until(|| fiber.fiber().waits_for() == Some(WaitKind::Park));
    fiber
}

fn one_carrier() -> Runtime {
    Runtime::builder().carriers(1).build().unwrap()
}

#[test]
fn a_trace_names_the_waker_of_each_fiber() {
    let _watch = watch::a_minute();
    let runtime = one_carrier();
    let trace = runtime.handle().trace(10_000).unwrap();
    let (sender, receiver) = channel::bounded::<u32>(1);
    let receives = runtime.spawn(move || receiver.recv().unwrap());
    let receives_id = receives.fiber().id();
    sinew::wait_until(|| receives.fiber().waits_for() == Some(WaitKind::Receive));
    let sends = runtime.spawn(move || sender.send(5).unwrap());
    let sends_id = sends.fiber().id();
    sends.join().unwrap();
    assert_eq!(receives.join().unwrap(), 5);
    let events = events_to_the_end(&trace, receives_id);
    check(&events);
    let kinds = of(&events, receives_id);
    assert!(matches!(kinds[0], TraceKind::Start { woken: None, .. }), "{kinds:?}");
    assert!(
        matches!(kinds[1], TraceKind::Wait { kind: WaitKind::Receive, address: 1.., .. }),
        "{kinds:?}"
    );
    let by = WokenBy::Fiber(sends_id);
    assert!(
        matches!(kinds[2], TraceKind::Start { woken: Some((_, who)), .. } if who == by),
        "{kinds:?}"
    );
    assert!(matches!(kinds[3], TraceKind::End { .. }), "{kinds:?}");
    assert_eq!(kinds.len(), 4);
}

#[test]
fn threads_and_deadlines_wake_as_well() {
    let _watch = watch::a_minute();
    let runtime = one_carrier();
    let trace = runtime.handle().trace(10_000).unwrap();
    let fiber = runtime.spawn(|| {
        sinew::park();
        sinew::sleep(Duration::from_millis(1));
        sinew::yield_now();
    });
    let id = fiber.fiber().id();
    sinew::wait_until(|| fiber.fiber().waits_for() == Some(WaitKind::Park));
    fiber.fiber().unpark();
    fiber.join().unwrap();
    let events = events_to_the_end(&trace, id);
    check(&events);
    let wakes: Vec<_> = of(&events, id)
        .into_iter()
        .filter_map(|kind| match kind {
            TraceKind::Start { woken, .. } => Some(woken.map(|(_, by)| by)),
            _ => None,
        })
        .collect();
    assert_eq!(wakes[..3], [None, Some(WokenBy::Thread), Some(WokenBy::Carrier)]);
    assert!(events.iter().any(|event| event.kind == TraceKind::Sleep));
}

#[test]
fn a_deadline_is_traced_as_a_wake_by_the_carrier() {
    let _watch = watch::a_minute();
    let runtime = one_carrier();
    let trace = runtime.handle().trace(100_000).unwrap();
    let sleeps = runtime.spawn(|| (0..20).for_each(|_| sinew::sleep(Duration::from_micros(100))));
    let id = sleeps.fiber().id();
    let fiber = sleeps.fiber();
    let busy = runtime.spawn(move || {
        while fiber.state() != sinew::FiberState::Dead {
            sinew::yield_now();
        }
    });
    sleeps.join().unwrap();
    busy.join().unwrap();
    let events = events_to_the_end(&trace, id);
    check(&events);
    let wakes: Vec<_> = of(&events, id)
        .into_iter()
        .filter_map(|kind| match kind {
            TraceKind::Start { woken: Some((_, by)), .. } => Some(by),
            _ => None,
        })
        .collect();
    assert!(wakes.len() >= 10 && wakes.iter().all(|by| *by == WokenBy::Carrier), "{wakes:?}");
}

#[test]
fn a_fiber_can_trace_itself() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let id = sinew::current().id();
        let trace = RuntimeHandle::current().trace(100).unwrap();
        sinew::yield_now();
        sinew::spawn(|| ()).join().unwrap();
        let second = RuntimeHandle::current().trace(100).unwrap();
        sinew::spawn(|| ()).join().unwrap();
        let first = trace.events();
        check(&first);
        drop(trace);
        let second = second.events();
        check(&second);
        let joins = |events: &[TraceEvent]| {
            of(events, id)
                .iter()
                .filter(|kind| matches!(kind, TraceKind::Wait { kind: WaitKind::Join, .. }))
                .count()
        };
        assert_eq!((joins(&first), joins(&second)), (2, 1));
    });
}

#[test]
fn only_the_last_events_are_kept() {
    let _watch = watch::a_minute();
    let runtime = one_carrier();
    let trace = runtime.handle().trace(10).unwrap();
    runtime.run(|| {
        let other = sinew::spawn(|| (0..100).for_each(|_| sinew::yield_now()));
        (0..100).for_each(|_| sinew::yield_now());
        other.join().unwrap();
    });
    // An event that is overwritten while it is read is not included.
    sinew::wait_until(|| trace.events().len() == 10);
}

#[test]
fn work_goes_on_when_a_trace_comes_and_goes() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let work: Vec<_> = (0..8)
        .map(|index| {
            let stop = stop.clone();
            let builder =
                FiberBuilder::new().runtime(runtime.handle()).name(format!("pair {index}"));
            let body = move || {
                let mut rounds = 0_u64;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let baton = std::sync::Arc::new(Baton::new());
                    let theirs = baton.clone();
                    let child = sinew::spawn(move || theirs.post());
                    baton.wait();
                    child.join().unwrap();
                    sinew::yield_now();
                    rounds += 1;
                }
                rounds
            };
            // SAFETY: nothing in the body keeps the address of a thread-local.
            let builder = if index % 2 == 0 { builder } else { unsafe { builder.migratable() } };
            builder.spawn(body)
        })
        .collect::<Result<_, _>>()
        .unwrap();
    let begin = Instant::now();
    let mut traces = 0;
    while begin.elapsed() < Duration::from_millis(500) || traces < 10 {
        let trace: Trace = runtime.handle().trace(1000).unwrap();
        runtime.handle().measure(traces % 2 == 0);
        sinew::wait_until(|| trace.events().len() > 500);
        check(&trace.events());
        traces += 1;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(work.into_iter().map(|fiber| fiber.join().unwrap()).sum::<u64>() > 0);
    let metrics = runtime.handle().metrics();
    assert!(metrics.run_time.count() > 0 && metrics.latency.count() > 0);
}

#[test]
fn the_file_is_json_with_a_slice_for_each_run() {
    let _watch = watch::a_minute();
    let runtime = one_carrier();
    let trace = runtime.handle().trace(1000).unwrap();
    let named = FiberBuilder::new().runtime(runtime.handle()).name("with \"quotes\"");
    let fiber = named.spawn(|| {
        let child = spawn_parked();
        child.fiber().unpark();
        child.join().unwrap();
    });
    let fiber = fiber.unwrap();
    let id = fiber.fiber().id();
    fiber.join().unwrap();
    events_to_the_end(&trace, id);
    let mut file = Vec::new();
    trace.write_json(&mut file).unwrap();
    let text = String::from_utf8(file).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let all = json["traceEvents"].as_array().unwrap();
    let with = |phase: &'static str| all.iter().filter(move |mark| mark["ph"] == phase);
    assert!(with("M").any(|mark| mark["args"]["name"] == "sinew carrier 0"), "{text}");
    let runs: Vec<_> = with("X")
        .filter(|mark| mark["name"].as_str().unwrap().starts_with("with \"quotes\" ("))
        .collect();
    assert!(runs.len() >= 3, "{text}");
    assert!(runs.iter().all(|run| run["ts"].is_f64() && run["dur"].is_f64()), "{text}");
    assert_eq!(runs.last().unwrap()["args"]["stopped for"], "its end");
    // An arrow to the child when it is unparked, and one back when it has ended.
    assert!(with("s").count() >= 2 && with("s").count() == with("f").count(), "{text}");
}

/// A fiber that runs again and again does not displace the names of others.
#[test]
fn names_are_learned_once() {
    use std::io::{Read, Write};
    use std::ops::ControlFlow::{Break, Continue};
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let trace = runtime.handle().trace(20).unwrap();
    let on = |carrier, name: &str| {
        FiberBuilder::new().runtime(runtime.handle()).carrier(carrier).name(name.to_owned())
    };
    let early = on(0, "early").spawn(|| ()).unwrap();
    let id = early.fiber().id();
    early.join().unwrap();
    events_to_the_end(&trace, id);
    let (reader, mut writer) = sinew::io::pipe().unwrap();
    let mut calls = 0;
    let resting = on(1, "resting").spawn_for_each_arrival(reader, move |reader| {
        calls += reader.read(&mut [0]).unwrap();
        if calls == 100 { Break(()) } else { Continue(()) }
    });
    writer.write_all(&[0; 100]).unwrap();
    resting.unwrap().join().unwrap();
    let mut file = Vec::new();
    trace.write_json(&mut file).unwrap();
    let text = String::from_utf8(file).unwrap();
    for name in ["early (", "resting ("] {
        assert!(text.contains(name), "no {name:?} in {text}");
    }
}

#[test]
fn run_times_and_wake_latencies_are_measured() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).measure(true).build().unwrap();
    const LONG: Duration = Duration::from_millis(20);
    runtime.run(|| {
        let waits = spawn_parked();
        waits.fiber().unpark();
        let begin = Instant::now();
        while begin.elapsed() < LONG {
            std::hint::spin_loop();
        }
        waits.join().unwrap();
    });
    let metrics = runtime.handle().metrics();
    assert!(metrics.run_time.quantile(1.0).unwrap() >= LONG, "{metrics:?}");
    assert!(metrics.run_time.quantile(0.1).unwrap() < LONG, "{metrics:?}");
    // The woken fiber had to wait for the computing one.
    assert!(metrics.latency.quantile(1.0).unwrap() >= LONG, "{metrics:?}");
    // A deadline that passes while another fiber computes is late as well.
    runtime.run(|| {
        let sleeps = sinew::spawn(|| sinew::sleep(LONG / 4));
        sinew::wait_until(|| sleeps.fiber().waits_for() == Some(WaitKind::Sleep));
        let before = RuntimeHandle::current().metrics().latency.sum();
        let begin = Instant::now();
        while begin.elapsed() < LONG {
            std::hint::spin_loop();
        }
        sleeps.join().unwrap();
        let after = RuntimeHandle::current().metrics().latency.sum();
        assert!(after - before >= LONG / 2, "{before:?} {after:?}");
    });
    runtime.handle().measure(false);
    // Measuring is off at the end of the tick.
    let count = || runtime.handle().metrics().run_time.count();
    let yields = || runtime.run(|| (0..200).for_each(|_| sinew::yield_now()));
    yields();
    let before = count();
    yields();
    assert_eq!(count(), before);
}

#[test]
fn bad_sizes_are_errors() {
    let runtime = one_carrier();
    let none = runtime.handle().trace(0).unwrap_err().to_string();
    assert!(none.contains("0 events"), "{none}");
    let many = runtime.handle().trace(usize::MAX).unwrap_err();
    assert_eq!(many.kind(), std::io::ErrorKind::OutOfMemory);
    assert!(many.to_string().contains(&usize::MAX.to_string()), "{many}");
}

#[test]
fn a_trace_outlives_its_runtime() {
    let _watch = watch::a_minute();
    let runtime = one_carrier();
    let trace = runtime.handle().trace(100).unwrap();
    runtime.run(|| ());
    drop(runtime);
    let ends =
        trace.events().iter().filter(|event| matches!(event.kind, TraceKind::End { .. })).count();
    assert_eq!(ends, 1);
}

/// Events of the `tracing` crate.
#[cfg(feature = "tracing")]
mod emitted {
    use super::{one_carrier, watch};
    use std::fmt::{Debug, Write};
    use std::sync::{Arc, Mutex};
    use tracing::field::{Field, Visit};
    use tracing::{Event, Metadata, Subscriber, span};

    /// Keeps each event as a line.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            write!(self.0, " {}={value:?}", field.name()).unwrap();
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "sinew::trace" && *metadata.level() == tracing::Level::TRACE
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn events_are_emitted_once() {
        let _watch = watch::a_minute();
        let runtime = one_carrier();
        let trace = runtime.handle().trace(1000).unwrap();
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            runtime.run(|| sinew::spawn(|| ()).join().unwrap());
            assert!(trace.emit() > 0);
            let starts = || {
                let lines = lines.0.lock().unwrap();
                let starts = lines.iter().filter(|line| line.contains("message=start")).cloned();
                starts.collect::<Vec<_>>()
            };
            // The first fiber starts again when the second has ended.
            assert_eq!(starts().len(), 3, "{:?}", starts());
            assert!(starts()[0].contains(" carrier=0 at="), "{:?}", starts());
            trace.emit();
            assert_eq!(starts().len(), 3);
            runtime.run(|| ());
            trace.emit();
            assert_eq!(starts().len(), 4);
        });
    }
}
