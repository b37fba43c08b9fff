//! `sinew serve`, started as users start it.

use sinew_testkit::watch;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// The command. It receives signals even if these tests run in the background of a shell or under
/// `nohup`.
fn sinew(arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT", env!("CARGO_BIN_EXE_sinew")]);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    sinew(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server, which ends with the test.
struct Served {
    child: Child,
    out: BufReader<ChildStdout>,
    /// The address that it prints.
    address: String,
    /// The address of its admin listener; empty without one.
    admin: String,
}

impl Served {
    fn start(arguments: &[&str]) -> Served {
        let mut arguments = [&["serve"], arguments].concat();
        if !arguments.contains(&"--listen") {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        // Tests run side by side, so none may use a fixed port.
        let says_where = ["--admin", "--no-admin", "--no-debug"];
        if !says_where.iter().any(|option| arguments.contains(option)) {
            arguments.extend(["--admin", "127.0.0.1:0"]);
        }
        let mut child = sinew(&arguments).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.ends_with("Ctrl-C ends it.\n") {
            assert_ne!(out.read_line(&mut said).unwrap(), 0, "{said:?}");
        }
        let address_before = |path: &str| {
            let line = said.lines().find(|line| line.contains(path))?;
            Some(line.split("://").nth(1)?.split('/').next()?.to_owned())
        };
        let address = address_before("/ ").unwrap_or_else(|| panic!("no address: {said:?}"));
        let admin = address_before("/metrics").unwrap_or_default();
        Served { child, out, address, admin }
    }

    fn get(&self, path: &str) -> (u16, String) {
        get(&self.address, path)
    }

    fn get_admin(&self, path: &str) -> (u16, String) {
        get(&self.admin, path)
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

fn get(host: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = text(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_greets_and_tells_of_itself() {
    let _watch = watch::a_minute();
    let server = Served::start(&["--carriers", "2"]);
    let (status, body) = server.get("/");
    assert_eq!(status, 200);
    assert!(body.starts_with("hello from fiber ") && body.contains(" of 2; "), "{body}");
    assert_eq!(server.get("/files/").0, 404);
    assert_eq!(server.get("/none").0, 404);
}

/// A proxy in front of the serving port connects from loopback, and may name a loopback host.
#[test]
fn the_debug_routes_are_at_the_admin_listener_and_nowhere_else() {
    let _watch = watch::a_minute();
    let server = Served::start(&[]);
    let (status, metrics) = server.get_admin("/metrics");
    assert!(status == 200 && metrics.contains("# TYPE sinew_"), "{metrics}");
    let (status, page) = server.get_admin("/debug/fibers");
    assert!(status == 200 && page.starts_with("<!doctype html>"), "{status}");
    assert_eq!(server.get_admin("/").0, 404);
    for path in ["/metrics", "/debug", "/debug/fibers", "/debug/fibers.json", "/debug/dump"] {
        assert_eq!(server.get(path).0, 404, "{path}");
    }
    for option in ["--no-admin", "--no-debug"] {
        let without = Served::start(&[option]);
        assert_eq!(without.admin, "", "{option}");
        assert_eq!(without.get("/metrics").0, 404);
    }
}

#[test]
fn an_admin_address_that_is_taken_is_an_error_if_it_was_asked_for() {
    let _watch = watch::a_minute();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&["serve", "--listen", "127.0.0.1:0", "--admin", &address]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&address) && said.contains("--admin"), "{said}");
}

#[test]
fn it_serves_files() {
    let _watch = watch::a_minute();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let server = Served::start(&["--files", root, "--listing"]);
    let main = std::fs::read_to_string(format!("{root}/main.rs")).unwrap();
    assert_eq!(server.get("/files/main.rs"), (200, main));
    let (status, listing) = server.get("/files/");
    assert!(status == 200 && listing.contains("main.rs"), "{listing}");
    assert_eq!(server.get("/files/../Cargo.toml").0, 404);
    assert_eq!(server.get("/files/%2e%2e/Cargo.toml").0, 404);
    let plain = Served::start(&["--files", root]);
    assert_eq!(plain.get("/files/").0, 404);
}

#[test]
fn signals_end_it_in_order() {
    let _watch = watch::a_minute();
    for signal in ["-INT", "-TERM", "-HUP"] {
        let mut server = Served::start(&["--log"]);
        assert_eq!(server.get("/").0, 200);
        // An idle connection does not delay the end.
        let mut idle = TcpStream::connect(&server.address).unwrap();
        server.signal(signal);
        assert!(server.child.wait().unwrap().success(), "{signal}");
        assert!(matches!(idle.read(&mut [0]), Ok(0) | Err(_)));
        let mut rest = String::new();
        server.out.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("\"GET / HTTP/1.1\" 200 "), "{rest}");
    }
}

/// As with `nohup`: the process outlives its terminal.
#[test]
fn a_hangup_that_is_ignored_from_the_start_stays_ignored() {
    let _watch = watch::a_minute();
    let mut child = Command::new("nohup")
        .arg(env!("CARGO_BIN_EXE_sinew"))
        .args(["serve", "--listen", "127.0.0.1:0", "--no-admin"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let address = line.split("://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let mut server = Served { child, out, address, admin: String::new() };
    server.signal("-HUP");
    assert_eq!(server.get("/").0, 200);
    server.signal("-TERM");
    assert!(server.child.wait().unwrap().success());
}

/// Sends requests with long log lines over one connection, and reads the answers.
fn fill_the_log(address: &str, requests: usize) {
    let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
    // Send the request in one piece, because the kernel would delay the second of several pieces.
    let request = format!("GET /?{} HTTP/1.1\r\nHost: {address}\r\n\r\n", "x".repeat(8000));
    for _ in 0..requests {
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the server does not answer");
            if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        stream.read_exact(&mut vec![0; length]).unwrap();
    }
}

/// How many lines of standard output the server has dropped, by its own metrics.
fn dropped(server: &Served) -> u64 {
    let (_, metrics) = server.get_admin("/metrics");
    let sample = "sinew_log_lines_dropped_total{stream=\"stdout\"} ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(sample));
    count.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

/// More lines than the pipe, the writing thread and its queue hold together.
const TOO_MANY: usize = 1300;

#[test]
fn a_log_that_nothing_reads_keeps_neither_clients_nor_signals() {
    let _watch = watch::a_minute();
    for signals in [&["-INT"][..], &["-TERM"], &["-INT", "-INT"]] {
        let mut server = Served::start(&["--log", "--carriers", "1", "--patience", "1000"]);
        fill_the_log(&server.address, TOO_MANY);
        assert_eq!(server.get("/").0, 200);
        assert_ne!(dropped(&server), 0);
        signals.iter().for_each(|signal| server.signal(signal));
        // The second of two signals may come after the first has ended the process.
        let status = server.child.wait().unwrap();
        assert!(status.success() || signals.len() == 2 && status.code() == Some(130), "{status}");
    }
}

#[test]
fn a_log_that_is_read_late_says_how_many_lines_are_missing() {
    let _watch = watch::a_minute();
    let mut server = Served::start(&["--log"]);
    fill_the_log(&server.address, TOO_MANY);
    let missing = dropped(&server);
    let mut lines = 0;
    let notice = loop {
        let mut line = String::new();
        assert_ne!(server.out.read_line(&mut line).unwrap(), 0);
        if line.contains("dropped") {
            break line;
        }
        lines += 1;
    };
    assert!(notice.contains(&format!(" {missing} lines were dropped")), "{notice}");
    assert_eq!(lines + missing, TOO_MANY as u64);
}

/// A client that does not read its download delays the orderly shutdown.
#[test]
fn the_second_signal_ends_it_at_once() {
    let _watch = watch::a_minute();
    let root = std::env::temp_dir().join(format!("sinew-serve-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let file = std::fs::File::create(root.join("large")).unwrap();
    file.set_len(1 << 30).unwrap();
    let root = root.to_str().unwrap();
    for (signals, code) in
        [(["-INT", "-INT"], 130), (["-TERM", "-TERM"], 143), (["-INT", "-TERM"], 143)]
    {
        let mut server = Served::start(&["--files", root, "--patience", "1000"]);
        let mut stream = TcpStream::connect(&server.address).unwrap();
        write!(stream, "GET /files/large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
        server.signal(signals[0]);
        let mut said = String::new();
        let mut err = BufReader::new(server.child.stderr.take().unwrap());
        err.read_line(&mut said).unwrap();
        assert!(said.contains("waiting for one connection"), "{said}");
        server.signal(signals[1]);
        assert_eq!(server.child.wait().unwrap().code(), Some(code));
    }
    std::fs::remove_dir_all(root).unwrap();
}

/// Without a limit, 64 stalled downloads would use up all 64 descriptors.
#[test]
fn downloads_that_stand_still_leave_descriptors_to_others() {
    let _watch = watch::a_minute();
    let root = std::env::temp_dir().join(format!("sinew-downloads-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    std::fs::File::create(root.join("large")).unwrap().set_len(1 << 30).unwrap();
    std::fs::write(root.join("small"), "small").unwrap();
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -n 64; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_sinew"), "serve"])
        .args(["--listen", "127.0.0.1:0", "--no-admin", "--log", "--files", root.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let address = line.split("://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let mut server = Served { child, out, address, admin: String::new() };
    let mut downloads = Vec::new();
    let refused = loop {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        write!(stream, "GET /files/large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut status = [0; b"HTTP/1.1 200".len()];
        stream.read_exact(&mut status).unwrap();
        if !status.ends_with(b"200") {
            break text(&status);
        }
        downloads.push(stream);
        assert!(downloads.len() < 64, "no download is refused");
    };
    assert!(refused.ends_with("503"), "{refused}");
    assert!(downloads.len() > 8, "{}", downloads.len());
    // New connections are accepted, and files are served again when a download has ended.
    assert_eq!(server.get("/").0, 200);
    assert_eq!(server.get("/files/small").0, 503);
    drop(downloads);
    sinew::wait_until(|| server.get("/files/small") == (200, "small".into()));
    server.signal("-TERM");
    let mut said = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!said.contains("cannot accept"), "{said}");
    assert!(server.child.wait().unwrap().success());
    std::fs::remove_dir_all(root).unwrap();
}

/// As in `sinew serve | true`.
#[test]
fn it_serves_though_its_output_cannot_be_written() {
    let _watch = watch::a_minute();
    let mut child = sinew(&["serve", "--listen", "127.0.0.1:0", "--no-admin", "--patience", "0"])
        .stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    // The server installs its signal handlers before it serves. An earlier signal would kill it.
    sinew::wait_until(|| child.try_wait().unwrap().is_some() || hears_signals(&pid));
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
}

/// Whether a process has a handler for `SIGTERM`.
fn hears_signals(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << 14) != 0)
}

/// The printed addresses can be reached.
#[test]
fn it_names_an_address_that_can_be_reached() {
    let _watch = watch::a_minute();
    let server = Served::start(&["--listen", "0.0.0.0:0", "--admin", "0.0.0.0:0"]);
    assert!(server.address.starts_with("127.0.0.1:"), "{}", server.address);
    assert_eq!(server.get("/").0, 200);
    let output = run(&["top", "--once", &server.admin]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn errors_are_reported_with_advice() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (arguments, code, words) in [
        (
            vec!["serve", "--no-admin", "--listen", &address],
            1,
            vec![&*address, "in use", "--listen"],
        ),
        (vec!["serve", "--listen", "nowhere"], 2, vec!["nowhere"]),
        (vec!["serve", "--cert", "none.pem", "--key", "none.key"], 1, vec!["none.pem"]),
        (vec!["serve", "--cert", "none.pem"], 2, vec!["--key"]),
        (vec!["serve", "--admin", "nowhere"], 2, vec!["nowhere"]),
        (vec!["serve", "--admin", &address, "--no-admin"], 2, vec!["--no-admin"]),
        (vec!["serve", "--files", "no/such/directory"], 1, vec!["no/such/directory"]),
        (vec!["serve", "--carriers", "0"], 2, vec!["--carriers"]),
        (vec!["serf"], 2, vec!["serf", "serve"]),
    ] {
        let output = run(&arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn without_a_command_it_lists_the_commands() {
    for arguments in [&[][..], &["--help"]] {
        let output = run(arguments);
        let said = text(&output.stdout);
        assert!(output.status.success());
        for word in ["serve", "top", "demo", "Examples:"] {
            assert!(said.contains(word), "{said}");
        }
    }
    assert!(text(&run(&["serve", "--help"]).stdout).contains("--self-signed"));
}

/// Runs both commands together.
#[test]
fn top_shows_its_fibers() {
    let _watch = watch::a_minute();
    for arguments in [&[][..], &["--self-signed"]] {
        let server = Served::start(arguments);
        let output = run(&["top", "--once", &server.admin]);
        let said = text(&output.stdout);
        assert!(output.status.success() && said.contains("accept"), "{output:?}");
    }
}
