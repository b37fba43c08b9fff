//! Runs a manager inside tokio: fibers and async tasks take turns on one thread, and talk to each
//! other.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use sinew::manager::{FiberManager, LoopController, Options, Runner, Until};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::os::fd::RawFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{Interest, unix::AsyncFd};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, timeout_at};

/// Runs a manager in a local task, which tokio wakes when the manager has something to run.
#[derive(Clone, Default)]
struct TokioLoopController(Rc<Shared>);

#[derive(Default)]
struct Shared {
    wanted: Arc<Notify>,
    runs: Cell<bool>,
    deadline: Cell<Option<Instant>>,
    watched: RefCell<Option<AsyncFd<RawFd>>>,
    busy: watch::Sender<bool>,
}

impl LoopController for TokioLoopController {
    fn attach(&self, runner: Runner) {
        spawn_local(drive(self.0.clone(), runner));
    }

    fn schedule(&self) {
        self.0.wanted.notify_one();
    }

    fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
        let wanted = self.0.wanted.clone();
        Arc::new(move || wanted.notify_one())
    }

    fn idle(&self, until: Until) {
        let state = &*self.0;
        state.deadline.set(until.deadline.map(Instant::from_std));
        let mut watched = state.watched.borrow_mut();
        *watched = until.fd.map(|fd| {
            watched.take().unwrap_or_else(|| {
                // SAFETY: before the manager closes the descriptor, it calls `idle` without it, and
                // that call drops the registration.
                let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
                watched.expect("tokio can watch the manager's descriptor")
            })
        });
        if !state.runs.get() {
            // An eager task has run outside of `drive`, which still waits by the old `until`.
            state.wanted.notify_one();
        }
    }

    fn keep_alive(&self, busy: bool) {
        self.0.busy.send_replace(busy);
    }
}

/// Drives the manager, in a local task.
async fn drive(state: Rc<Shared>, runner: Runner) {
    while !runner.is_gone() {
        state.runs.set(true);
        runner.run();
        state.runs.set(false);
        let mut wanted = pin!(state.wanted.notified());
        let called = poll_fn(|context| {
            if wanted.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            match state.watched.borrow().as_ref().map(|fd| fd.poll_read_ready(context)) {
                Some(Poll::Ready(ready)) => {
                    ready.unwrap().clear_ready(); // the next run handles all events
                    Poll::Ready(())
                }
                Some(Poll::Pending) | None => Poll::Pending,
            }
        });
        match state.deadline.get() {
            Some(deadline) => drop(timeout_at(deadline, called).await),
            None => called.await,
        }
    }
}

pub(crate) fn main() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, talk())
}

async fn talk() -> std::io::Result<()> {
    let controller = TokioLoopController::default();
    let manager = FiberManager::new(controller.clone(), Options::new().name("in tokio"))?;

    // A fiber sleeps by sinew's timer while an async task sleeps by tokio's.
    let slept = manager.add_task_future(|| sinew::sleep(Duration::from_millis(30)));
    sleep(Duration::from_millis(10)).await;
    assert!(!slept.is_ready());
    slept.await.unwrap();
    println!("slept side by side");

    // Numbers go from an async task to a fiber, and from there to another. Their sum comes back.
    let (numbers, mut incoming) = mpsc::channel(4);
    spawn_local(async move {
        for number in 1..=1000_u64 {
            numbers.send(number).await.unwrap();
        }
    });
    let (squares, squared) = sinew::sync::channel::bounded(4);
    manager.add_task(move || {
        // The fiber waits while tokio goes on.
        while let Some(number) = sinew::block_on(incoming.recv()) {
            squares.send(number * number).unwrap();
        }
    });
    let sum: u64 = manager.add_task_future(move || squared.iter().sum()).await.unwrap();
    assert_eq!(sum, 333_833_500);
    println!("the sum of the squares is {sum}");

    // A fiber with a socket of sinew serves a client with a socket of tokio.
    let listener = sinew::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    manager.add_task(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut word = [0; 5];
        stream.read_exact(&mut word).unwrap();
        word.reverse();
        stream.write_all(&word).unwrap();
    });
    let client = tokio::net::TcpStream::connect(address).await?;
    client.writable().await?;
    client.try_write(b"fiber")?;
    client.readable().await?;
    let mut answer = [0; 5];
    client.try_read(&mut answer)?;
    assert_eq!(&answer, b"rebif");
    println!("a fiber answered {}", String::from_utf8_lossy(&answer));

    // Another thread adds a task here, and blocks until it has ended.
    let (remote, (tells, told)) = (manager.remote(), oneshot::channel());
    std::thread::spawn(move || {
        let task = remote.add_task_remote_future(|| std::thread::current().id());
        tells.send(task.get().unwrap())
    });
    assert_eq!(told.await, Ok(std::thread::current().id()));
    println!("another thread had a task run here");

    // The sleeping fiber ends by itself. Dropping the manager cancels the stuck one.
    manager.add_task(|| sinew::sleep(Duration::from_millis(5)));
    let _ = controller.0.busy.subscribe().wait_for(|busy| !busy).await;
    let stuck = manager.add_task_eager_future(sinew::park);
    drop(manager);
    assert!(sinew::is_cancel(&*stuck.await.unwrap_err()));
    println!("everything has ended");
    Ok(())
}
