//! Managers in foreign loops: the examples, and the guarantees that such loops rely on.

use sinew::manager::{EventLoop, FiberManager, Options, SimpleLoopController, manager_for};
use sinew::os::unix::net::UnixStream;
use sinew_testkit::watch;
use std::io::{Read, Write};
use std::rc::Rc;

#[path = "../examples/in_mio.rs"]
mod in_mio;
#[path = "../examples/in_tokio.rs"]
mod in_tokio;

#[test]
fn a_manager_runs_inside_tokio() {
    let _watch = watch::a_minute();
    in_tokio::main().unwrap();
}

#[test]
fn a_manager_runs_inside_a_users_loop() {
    let _watch = watch::a_minute();
    in_mio::main().unwrap();
}

/// A loop that watches the descriptor by edges, as tokio and mio do, gets no second event for input
/// that a run has left.
#[test]
fn one_run_takes_every_pending_event() {
    let _watch = watch::a_minute();
    const STREAMS: usize = 300;
    let manager = FiberManager::new(SimpleLoopController::new(), Options::new()).unwrap();
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let (ours, theirs) = UnixStream::pair().unwrap();
        streams.push((Rc::new(ours), std::os::unix::net::UnixStream::from(theirs)));
    }
    let read = |stream: &Rc<UnixStream>| {
        let stream = stream.clone();
        manager.add_task_future(move || (&*stream).read_exact(&mut [0]).unwrap())
    };
    // All streams are registered with the manager; then a fiber waits only for the last.
    let all: Vec<_> = streams.iter().map(|(ours, _)| read(ours)).collect();
    manager.loop_until_no_ready();
    streams.iter_mut().for_each(|(_, theirs)| theirs.write_all(&[1]).unwrap());
    while !all.iter().all(|read| read.is_ready()) {
        manager.loop_until_no_ready();
    }
    let last = read(&streams[STREAMS - 1].0);
    manager.loop_until_no_ready();
    streams.iter_mut().for_each(|(_, theirs)| theirs.write_all(&[2]).unwrap());
    manager.loop_until_no_ready();
    assert!(last.is_ready(), "something is left, of which nobody is told again");
}

/// The requests of fibers to the kernel are submitted before the loop sleeps, because there is no
/// later occasion.
#[test]
fn files_are_written_inside_a_loop() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let path = std::env::temp_dir().join(format!("sinew-{}", std::process::id()));
    for _ in 0..5 {
        let path = path.clone();
        let written = manager_for(&events).add_task_future(move || {
            let mut file = sinew::fs::File::create(&path)?;
            file.write_all(&[1; 1000])?;
            file.sync_all()
        });
        events.run();
        written.get().unwrap().unwrap();
    }
    std::fs::remove_file(path).unwrap();
}
