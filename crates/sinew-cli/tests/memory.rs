//! The memory that `sinew serve` keeps after a burst.

use sinew_testkit::watch;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Sanitizers distort the resident memory.
const MEASURES: bool = cfg!(target_os = "linux") && !cfg!(sinew_asan) && !cfg!(sinew_tsan);

struct Served {
    child: Child,
    _out: BufReader<ChildStdout>,
    address: String,
    admin: String,
}

impl Served {
    fn start() -> Served {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sinew"))
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.ends_with("Ctrl-C ends it.\n") {
            assert_ne!(out.read_line(&mut said).unwrap(), 0, "{said:?}");
        }
        let address = |line: Option<&str>| {
            line.and_then(|line| line.split("://").nth(1)?.split('/').next()).unwrap().to_owned()
        };
        let admin = address(said.lines().find(|line| line.contains("/metrics")));
        let address = address(said.lines().next());
        Served { child, _out: out, address, admin }
    }

    fn resident(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
    }

    /// Waits until the server has given memory back. That should take 10 s; a busy machine may take
    /// longer.
    #[track_caller]
    fn shrinks_to(&self, most: usize) {
        let shrunk = || self.resident() <= most;
        let is_small = sinew::wait_until_timeout(shrunk, Duration::from_secs(30));
        assert!(is_small, "{} KiB are left, more than {}", self.resident() >> 10, most >> 10);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Raises the limit of descriptors. Returns false if the system does not allow enough of them.
fn have_descriptors(count: u64) -> bool {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).is_ok() && limit.current.is_none_or(|most| most > count)
}

#[test]
fn an_attack_of_half_heads_leaves_little_behind() {
    let _watch = watch::a_minute();
    const ATTACKERS: usize = 5000;
    if !MEASURES || !have_descriptors(2 * ATTACKERS as u64) {
        return;
    }
    let server = Served::start();
    assert!(get(&server.address, "/").contains("hello"));
    let before = server.resident();
    let attackers: Vec<_> = (0..ATTACKERS)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
            stream
        })
        .collect();
    // The connection of each attacker has a stack and buffers by now, or soon.
    let large = || server.resident() > before + (64 << 20);
    assert!(sinew::wait_until_timeout(large, Duration::from_secs(20)));
    drop(attackers);
    server.shrinks_to(2 * before + (16 << 20));
    assert!(get(&server.address, "/").contains("hello"));
}

#[test]
fn the_tables_of_a_dump_are_given_back() {
    let _watch = watch::a_minute();
    if !MEASURES {
        return;
    }
    let server = Served::start();
    let before = server.resident();
    let dump = get(&server.admin, "/debug/dump");
    assert!(dump.contains("accept"), "{dump}");
    server.shrinks_to(before + (16 << 20));
    // The next dump reads the tables again.
    assert!(get(&server.admin, "/debug/dump").contains("accept"));
}
