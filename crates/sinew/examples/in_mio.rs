//! Runs a manager inside a hand-written mio loop: the loop accepts connections, and a fiber serves
//! each.
//!
//! The loop waits for its own listener, for the descriptor of the manager, for calls from other
//! threads, and until the manager's deadline. Then it runs the manager.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use mio::net::TcpListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use sinew::manager::{FiberManager, LoopController, Options, Runner, Until};
use std::cell::{Cell, OnceCell};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LISTENER: Token = Token(0);
const FIBERS: Token = Token(1);
const CALL: Token = Token(2);

/// The state that the loop and the manager's controller share.
struct Shared {
    runner: OnceCell<Runner>,
    registry: Registry,
    waker: Arc<Waker>,
    wanted: Cell<bool>,
    until: Cell<Until>,
    busy: Cell<bool>,
}

struct MioLoopController(Rc<Shared>);

impl LoopController for MioLoopController {
    fn attach(&self, runner: Runner) {
        self.0.runner.set(runner).expect("a loop has one manager");
    }

    fn schedule(&self) {
        self.0.wanted.set(true); // the loop reads this flag before it waits
    }

    fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
        let waker = self.0.waker.clone();
        Arc::new(move || waker.wake().expect("mio can wake the loop"))
    }

    fn idle(&self, until: Until) {
        let before = self.0.until.replace(until);
        let registered = match (before.fd, until.fd) {
            (None, Some(fd)) => {
                self.0.registry.register(&mut SourceFd(&fd), FIBERS, Interest::READABLE)
            }
            (Some(fd), None) => self.0.registry.deregister(&mut SourceFd(&fd)),
            _ => Ok(()), // the descriptor has not changed
        };
        registered.expect("mio can watch the manager's descriptor");
    }

    fn keep_alive(&self, busy: bool) {
        self.0.busy.set(busy);
    }
}

impl Shared {
    /// Returns how long the loop may wait.
    fn patience(&self) -> Option<Duration> {
        if self.wanted.get() {
            return Some(Duration::ZERO);
        }
        self.until.get().deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

pub(crate) fn main() -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let state = Rc::new(Shared {
        runner: OnceCell::new(),
        registry: poll.registry().try_clone()?,
        waker: Arc::new(Waker::new(poll.registry(), CALL)?),
        wanted: Cell::new(false),
        until: Cell::new(Until::default()),
        busy: Cell::new(false),
    });
    let manager = FiberManager::new(MioLoopController(state.clone()), Options::new().name("echo"))?;

    // The clients run on a thread, which tells the loop when they are done.
    let ends = Arc::new(AtomicBool::new(false));
    let (address, remote, theirs) = (listener.local_addr()?, manager.remote(), ends.clone());
    let clients = std::thread::spawn(move || {
        let result = ask(address);
        remote.add_task_remote(move || theirs.store(true, Ordering::Relaxed));
        result
    });

    let mut events = Events::with_capacity(16);
    while state.busy.get() || !ends.load(Ordering::Relaxed) {
        match poll.poll(&mut events, state.patience()) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            result => result?,
        }
        for event in &events {
            if event.token() == LISTENER {
                accept(&listener, &manager)?;
            }
        }
        // Another thread has called, a descriptor has an event, or a deadline has passed. A run
        // that finds nothing to do costs little.
        state.wanted.set(false);
        state.runner.get().expect("the manager has attached itself").run();
    }
    clients.join().expect("the clients do not panic")?;
    println!("everything has ended");
    Ok(())
}

/// Accepts all waiting connections, and adds a fiber to serve each.
fn accept(listener: &TcpListener, manager: &FiberManager) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let stream = sinew::net::TcpStream::from(std::net::TcpStream::from(stream));
                manager.add_task(move || match serve(&stream) {
                    Ok(lines) => println!("a connection had {lines} lines"),
                    Err(_) => println!("a connection was silent"),
                });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Echoes lines. This runs in a fiber, and waits for the client as a thread would.
fn serve(mut stream: &sinew::net::TcpStream) -> io::Result<usize> {
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut lines = 0;
    for line in BufReader::new(stream).lines() {
        writeln!(stream, "{}", line?)?;
        lines += 1;
    }
    Ok(lines)
}

/// Runs two clients that send lines, and one that stays silent.
fn ask(address: SocketAddr) -> io::Result<()> {
    let connect = || std::net::TcpStream::connect(address);
    let (mut first, mut second, mut silent) = (connect()?, connect()?, connect()?);
    for (client, lines) in [(&mut first, "one\ntwo\nthree\n"), (&mut second, "alpha\nbeta\n")] {
        client.write_all(lines.as_bytes())?;
        client.shutdown(Shutdown::Write)?;
        assert_eq!(io::read_to_string(client)?, lines);
    }
    assert_eq!(silent.read(&mut [0])?, 0);
    Ok(())
}
