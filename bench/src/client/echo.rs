//! Sends requests and waits for their answers, in threads with an epoll each.
//!
//! Each connection has one request under way and sends the next when the answer has come. A warm-up
//! of a quarter of the time comes first. Then the client waits for all answers, and the measurement
//! begins. At its end the client waits for the last answers too. The rate counts requests that were
//! answered in time; latency and processor time count all requests.
//!
//! A single thread stays on the last processor; several threads stay on one processor each. If they
//! wandered, the threads of the server would wander too, and the figures would scatter around two
//! values rather than one.

use super::histogram::Histogram;
use super::{COMPUTE, MESSAGE, PATIENCE, wait_for_start};
use crate::floor::threads::{processor_from_last, stay_on};
use crate::server;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// The most events that one `epoll_wait` takes.
const EVENTS: usize = 512;

struct Connection {
    stream: TcpStream,
    /// When the request under way was sent.
    sent: Instant,
    /// The bytes of its answer that have come.
    received: usize,
    /// Whether the request under way computes.
    computes: bool,
    /// When the next request that computes is due.
    compute_at: Option<Instant>,
}

/// One thread of the client, with its share of the connections.
struct Client {
    processor: usize,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Requests that compute, per second and connection.
    rate: f64,
    chance: u64,
}

/// The requests that were answered.
struct Answered {
    latency: Histogram,
    requests: u64,
    in_time: u64,
    computed: u64,
}

/// The parameters of the client.
pub(super) struct Task {
    pub(super) port: u16,
    pub(super) connections: usize,
    pub(super) threads: usize,
    pub(super) time: Duration,
    /// Requests that compute, per second and connection.
    pub(super) rate: f64,
}

pub(super) fn run(task: &Task) -> io::Result<()> {
    server::allow_files();
    let mut clients: Vec<Client> =
        (0..task.threads).map(|number| Client::new(number, task)).collect::<io::Result<_>>()?;
    for number in 0..task.connections {
        // A server may deal its connections out to two threads in turn. Each thread of the client
        // gets connections of both server threads.
        clients[number / 2 % task.threads].connect(task.port)?;
    }
    exchange_all(&mut clients, task.time / 4)?;
    wait_for_start()?;
    let before = server::used();
    let answered = exchange_all(&mut clients, task.time)?;
    println!(
        "{} {} {} {} {} {}",
        answered.in_time as f64 / task.time.as_secs_f64(),
        answered.latency.quantile(0.50),
        answered.latency.quantile(0.99),
        answered.computed as f64 / task.time.as_secs_f64(),
        answered.requests,
        (server::used().total() - before.total()).as_secs_f64()
    );
    Ok(())
}

/// Lets all threads send requests for `time`, and waits for all answers.
fn exchange_all(clients: &mut [Client], time: Duration) -> io::Result<Answered> {
    let begin = &Barrier::new(clients.len());
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for client in clients {
            threads.push(scope.spawn(move || {
                stay_on(client.processor);
                begin.wait();
                client.exchange(time)
            }));
        }
        let mut all = Answered::default();
        for thread in threads {
            all.add(&thread.join().expect("it does not panic")?);
        }
        Ok(all)
    })
}

impl Default for Answered {
    fn default() -> Answered {
        Answered { latency: Histogram::new(), requests: 0, in_time: 0, computed: 0 }
    }
}

impl Answered {
    fn add(&mut self, other: &Answered) {
        self.latency.add(&other.latency);
        self.requests += other.requests;
        self.in_time += other.in_time;
        self.computed += other.computed;
    }
}

impl Client {
    /// Returns the thread with this number, without connections.
    fn new(number: usize, task: &Task) -> io::Result<Client> {
        // SAFETY: no preconditions; the call returns a new descriptor or an error.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        Ok(Client {
            // The first thread runs on the last processor.
            processor: processor_from_last(number),
            epoll,
            connections: Vec::new(),
            rate: task.rate,
            chance: 2 * number as u64 + 1,
        })
    }

    /// Opens one more connection.
    fn connect(&mut self, port: u16) -> io::Result<()> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        super::idle::reset_on_close(&stream);
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET) as u32,
            u64: self.connections.len() as u64,
        };
        let (epoll, descriptor) = (self.epoll.as_raw_fd(), stream.as_raw_fd());
        // SAFETY: both descriptors are open, and the event is valid.
        if unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor, &mut event) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.connections.push(Connection {
            stream,
            sent: Instant::now(),
            computes: false,
            compute_at: None,
            received: 0,
        });
        Ok(())
    }

    /// Sends requests for `time`, and waits for all answers.
    fn exchange(&mut self, time: Duration) -> io::Result<Answered> {
        let mut answered = Answered::default();
        let start = Instant::now();
        let end = start + time;
        for number in 0..self.connections.len() {
            self.connections[number].compute_at = self.due(start);
            self.send(number, start)?;
        }
        let mut under_way = self.connections.len();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        while under_way > 0 {
            for event in self.wait(&mut events)? {
                let number = event.u64 as usize;
                if !self.connections[number].receive()? {
                    continue;
                }
                let now = Instant::now();
                let connection = &self.connections[number];
                answered.latency.note((now - connection.sent).as_nanos() as u64);
                answered.requests += 1;
                if now >= end {
                    under_way -= 1;
                    continue;
                }
                answered.in_time += 1;
                answered.computed += u64::from(connection.computes);
                self.send(number, now)?;
            }
        }
        Ok(answered)
    }

    fn wait<'a>(
        &self,
        events: &'a mut [libc::epoll_event; EVENTS],
    ) -> io::Result<&'a [libc::epoll_event]> {
        // SAFETY: the descriptor is open, and `events` has room for `EVENTS` events.
        let count = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                EVENTS as i32,
                PATIENCE.as_millis() as i32,
            )
        };
        match count {
            0 => Err(io::Error::new(ErrorKind::TimedOut, "the server does not answer")),
            1.. => Ok(&events[..count as usize]),
            _ => match io::Error::last_os_error() {
                error if error.kind() == ErrorKind::Interrupted => Ok(&[]),
                error => Err(error),
            },
        }
    }

    /// Sends the next request of a connection.
    fn send(&mut self, number: usize, now: Instant) -> io::Result<()> {
        let mut request = [0; MESSAGE];
        let computes = self.connections[number].compute_at.is_some_and(|at| now >= at);
        if computes {
            request[0] = COMPUTE;
            self.connections[number].compute_at = self.due(now);
        }
        let connection = &mut self.connections[number];
        connection.sent = now;
        connection.computes = computes;
        // The request fits into the socket's buffer: all requests before it have been answered.
        connection.stream.write_all(&request)
    }

    /// Returns when a connection sends its next request that computes. These requests form a
    /// Poisson process.
    fn due(&mut self, now: Instant) -> Option<Instant> {
        if self.rate == 0.0 {
            return None;
        }
        self.chance = crate::load::mix(self.chance, 3);
        let uniform = (self.chance >> 11) as f64 / (1_u64 << 53) as f64;
        Some(now + Duration::from_secs_f64(-(1.0 - uniform).ln() / self.rate))
    }
}

impl Connection {
    /// Reads the bytes of the answer that have come; returns whether the answer is complete.
    fn receive(&mut self) -> io::Result<bool> {
        let mut answer = [0; MESSAGE];
        loop {
            match self.stream.read(&mut answer[self.received..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.received += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if self.received == MESSAGE {
                self.received = 0;
                return Ok(true);
            }
        }
    }
}
