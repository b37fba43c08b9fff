//! A server with many kinds of waiting fibers: `cargo run -p sinew-http --example debug`, then
//! <http://127.0.0.1:8081/debug/fibers>, or `sinew top`.
//!
//! Some hundred fibers sleep, wait for locks, channels and each other, and do a little work in
//! between. With `deadlock` as the second argument, two of them wait for each other forever. A
//! number as the third argument adds that many waiting fibers.

use sinew::sync::{Mutex, Semaphore, channel};
use sinew_http::{Request, Router, Server};
use std::sync::Arc;
use std::time::Duration;

#[expect(clippy::print_stdout, reason = "a program says where it can be reached")]
fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:8081".into());
    let runtime = sinew::Runtime::builder().name("example").measure(true).build()?;
    let deadlocks = arguments.next().is_some_and(|word| word == "deadlock");
    let more = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(0);
    let router = Router::new().get("/", |_: Request| "hello\n");
    let server =
        Server::bind("127.0.0.1:0").admin(&*address).runtime(runtime.handle()).start(router)?;
    println!("http://{}/debug/fibers", server.admin_addr().unwrap_or(server.local_addr()));
    runtime.run(move || populate(deadlocks, more))?;
    server.wait();
    Ok(())
}

fn named<T: Send + 'static>(
    name: impl Into<Arc<str>>,
    f: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<sinew::JoinHandle<T>> {
    sinew::FiberBuilder::new().name(name).spawn(f)
}

fn populate(deadlocks: bool, more: usize) -> std::io::Result<()> {
    for number in 0..120 {
        named(format!("ticker {number}"), move || tick(Duration::from_millis(20 + 7 * number)))?;
    }
    take_turns()?;
    pass_messages()?;
    join_each_other()?;
    named("<script>alert('a name is text')</script>", sinew::park)?;
    named("<img src=x onerror=alert(1)> & \"quoted\" ünïcödé 纤维 🧵", sinew::park)?;
    named("busy", compute)?;
    let few = Arc::new(Semaphore::new(3));
    for number in 0..20 {
        let few = few.clone();
        named(format!("guest {number}"), move || visit(&few))?;
    }
    for _ in 0..more {
        sinew::spawn(sinew::park);
    }
    if deadlocks {
        wait_for_each_other()?;
    }
    Ok(())
}

fn tick(period: Duration) {
    loop {
        sinew::sleep(period);
    }
}

fn take_turns() -> std::io::Result<()> {
    let lock = Arc::new(Mutex::new(0_u64));
    for number in 0..12 {
        let lock = lock.clone();
        named(format!("philosopher {number}"), move || {
            loop {
                let mut count = lock.lock();
                *count += 1;
                sinew::sleep(Duration::from_millis(300));
                drop(count);
                sinew::sleep(Duration::from_millis(50));
            }
        })?;
    }
    Ok(())
}

fn pass_messages() -> std::io::Result<()> {
    for number in 0..30 {
        let (sender, receiver) = channel::bounded(4);
        named(format!("producer {number}"), move || {
            for message in 0_u64.. {
                if sender.send(message).is_err() {
                    return;
                }
                sinew::sleep(Duration::from_millis(1 + number));
            }
        })?;
        named(format!("consumer {number}"), move || while receiver.recv().is_ok() {})?;
    }
    Ok(())
}

fn join_each_other() -> std::io::Result<()> {
    let mut last = named("last of the chain", sinew::park)?;
    for number in 0..20 {
        last = named(format!("link {number}"), move || {
            let _ = last.join();
        })?;
    }
    Ok(())
}

fn visit(few: &Semaphore) {
    loop {
        let permit = few.acquire();
        sinew::sleep(Duration::from_millis(400));
        drop(permit);
    }
}

/// Computes for some milliseconds at a time.
fn compute() {
    for round in 0_u64.. {
        let sum: u64 = (0..400_000).fold(round, |sum, n| std::hint::black_box(sum ^ n));
        std::hint::black_box(sum);
        sinew::sleep(Duration::from_millis(30));
    }
}

fn wait_for_each_other() -> std::io::Result<()> {
    let (left, right) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    for (name, first, second) in
        [("left first", left.clone(), right.clone()), ("right first", right, left)]
    {
        named(name, move || {
            let _first = first.lock();
            sinew::sleep(Duration::from_millis(100));
            let _second = second.lock();
        })?;
    }
    Ok(())
}
