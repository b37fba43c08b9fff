//! `sinew top`, as scripts and users see it.

use sinew::{FiberBuilder, FiberState, JoinHandle, Runtime};
use sinew_http::debug::Access;
use sinew_http::http::StatusCode;
use sinew_http::{Request, Response, Router, Server, ServerHandle, Tls};
use sinew_testkit::watch::a_minute;
use std::process::{Command, Output};
use std::time::Duration;

fn top(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
    command.arg("top").args(arguments);
    command
}

fn once(url: &str, more: &[&str]) -> Output {
    top(&[&["--once", url], more].concat()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[inline(never)]
fn wades() {
    sinew::park();
}

/// A server with some waiting fibers.
fn serve(runtime: &Runtime) -> (ServerHandle, Vec<JoinHandle<()>>) {
    let router = Router::new().debug(Access::Loopback);
    let server = Server::bind("127.0.0.1:0").runtime(runtime.handle()).start(router).unwrap();
    let waits =
        |name: &str| FiberBuilder::new().runtime(runtime.handle()).name(name).spawn(wades).unwrap();
    let fibers: Vec<_> = ["heron", "stork", "evil\u{1b}[2J\nname"].map(waits).into();
    for fiber in &fibers {
        let suspended = || fiber.fiber().state() == FiberState::Suspended;
        assert!(sinew::wait_until_timeout(suspended, Duration::from_secs(20)));
    }
    (server, fibers)
}

#[test]
fn once_prints_the_fibers() {
    let _watchdog = a_minute();
    let runtime = Runtime::builder().name("marsh").carriers(2).build().unwrap();
    let (server, _fibers) = serve(&runtime);
    let url = format!("http://{}", server.local_addr());
    let output = once(&url, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let all = text(&output.stdout);
    assert!(all.contains("marsh") && all.contains(&format!("pid {}", std::process::id())), "{all}");
    let heron = all.lines().find(|line| line.contains("heron")).unwrap();
    assert!(heron.contains("suspended") && heron.contains("park"), "{heron}");
    assert!(!all.contains('\u{1b}'), "{all:?}");

    let some = text(&once(&url, &["--filter", "stork", "--sort", "-age"]).stdout);
    assert!(some.contains("stork") && !some.contains("heron"), "{some}");
    let one = text(&once(&url, &["--sort", "name", "--limit", "1"]).stdout);
    assert!(one.contains(" more\n") && !one.contains("stork"), "{one}");
    // `--once` is the default here, because the output is not a terminal.
    let output = top(&[&url]).output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains("heron"));
}

/// The error message of a run that fails.
fn failure(url: &str) -> String {
    let output = once(url, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    text(&output.stderr)
}

#[test]
fn errors_are_named() {
    let _watchdog = a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let answers = |status: StatusCode| {
        let handler = move |_: Request| Response::text("a reason\n").with_status(status);
        Server::bind("127.0.0.1:0").runtime(runtime.handle()).start(handler).unwrap()
    };
    let at = |server: &ServerHandle| format!("http://{}", server.local_addr());

    let missing = failure(&at(&answers(StatusCode::NOT_FOUND)));
    assert!(missing.contains("404") && missing.contains("sinew serve"), "{missing}");
    let refused = failure(&at(&answers(StatusCode::FORBIDDEN)));
    assert!(refused.contains("403") && refused.contains("a reason"), "{refused}");
    let other = failure(&at(&answers(StatusCode::OK)));
    assert!(other.contains("no sinew server"), "{other}");

    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = failure(&free.to_string());
    assert!(nobody.contains(&free.to_string()) && nobody.contains("sinew serve"), "{nobody}");
    assert!(failure("ftp://localhost").contains("https://"));
}

/// The user has to accept a self-signed certificate explicitly.
#[test]
fn routes_behind_tls_are_shown_if_the_certificate_is_accepted() {
    let _watchdog = a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let server = Server::bind("127.0.0.1:0")
        .runtime(runtime.handle())
        .tls(Tls::self_signed(["localhost", "127.0.0.1"]).unwrap())
        .start(Router::new().debug(Access::Loopback))
        .unwrap();
    let url = format!("https://{}", server.local_addr());
    assert!(failure(&url).contains("--insecure"));
    let output = once(&url, &["--insecure"]);
    assert!(output.status.success() && text(&output.stdout).contains("accept"), "{output:?}");
}

#[cfg(target_os = "linux")]
mod terminal {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, Signal, kill_process};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::ffi::OsStrExt;
    use std::process::Child;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};
    use std::thread::JoinHandle;
    use std::time::Instant;

    /// A run in a terminal, and its output.
    struct Session {
        /// `None` after the terminal was hung up.
        keys: Option<File>,
        terminal: File,
        before: Termios,
        child: Child,
        seen: Arc<Mutex<Vec<u8>>>,
        /// Reads the output until it is told to stop.
        reader: Option<JoinHandle<()>>,
        stop: Arc<AtomicBool>,
    }

    impl Session {
        fn start(url: &str) -> Session {
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let master = openpt(flags).unwrap();
            grantpt(&master).unwrap();
            unlockpt(&master).unwrap();
            let name = ptsname(&master, Vec::new()).unwrap();
            let path = std::ffi::OsStr::from_bytes(name.as_bytes());
            let terminal = File::options().read(true).write(true).open(path).unwrap();
            resize(&terminal, 100);
            let before = tcgetattr(&terminal).unwrap();
            let child = top(&[url, "--interval", "0.1"])
                .stdin(terminal.try_clone().unwrap())
                .stdout(terminal.try_clone().unwrap())
                .stderr(terminal.try_clone().unwrap())
                .spawn()
                .unwrap();
            let keys = File::from(master);
            let mut screen = keys.try_clone().unwrap();
            let seen = Arc::new(Mutex::new(Vec::new()));
            let stop = Arc::new(AtomicBool::new(false));
            let (into, stopped) = (seen.clone(), stop.clone());
            let reader = std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                let often = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                while !stopped.load(Ordering::SeqCst) {
                    let ready = poll(&mut [PollFd::new(&screen, PollFlags::IN)], Some(&often));
                    if ready == Ok(1) {
                        let Ok(count @ 1..) = screen.read(&mut buffer) else { return };
                        into.lock().unwrap().extend(&buffer[..count]);
                    }
                }
            });
            let (keys, reader) = (Some(keys), Some(reader));
            Session { keys, terminal, before, child, seen, reader, stop }
        }

        /// Closes the terminal, as closing a window does.
        fn hang_up(&mut self) {
            self.stop.store(true, Ordering::SeqCst);
            self.reader.take().unwrap().join().unwrap();
            self.keys = None;
        }

        fn press(&mut self, keys: &str) {
            self.seen.lock().unwrap().clear();
            self.keys.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
        }

        #[track_caller]
        fn wait_timeout(&self, wanted: &str) {
            let deadline = Instant::now() + Duration::from_secs(20);
            loop {
                let seen = String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned();
                if seen.contains(wanted) {
                    return;
                }
                let end = &seen[seen.rfind("\u{1b}[?2026h").unwrap_or(0)..];
                assert!(Instant::now() < deadline, "no {wanted:?} in {end:?}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }

        /// Waits for the end of the run, and checks that the terminal is restored.
        #[track_caller]
        fn finish(mut self) {
            let deadline = Instant::now() + Duration::from_secs(20);
            let status = loop {
                match self.child.try_wait().unwrap() {
                    Some(status) => break status,
                    None => assert!(Instant::now() < deadline, "the command does not end"),
                }
                std::thread::sleep(Duration::from_millis(10));
            };
            assert!(status.success(), "{status}");
            self.wait_timeout("\u{1b}[?1049l");
            let after = tcgetattr(&self.terminal).unwrap();
            assert_eq!(after.local_modes, self.before.local_modes);
            assert_eq!(after.input_modes, self.before.input_modes);
            assert_eq!(after.output_modes, self.before.output_modes);
        }
    }

    impl Drop for Session {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn resize(terminal: &File, columns: u16) {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(terminal, size).unwrap();
    }

    #[test]
    fn keys_are_followed_and_the_terminal_is_given_back() {
        let _watchdog = a_minute();
        let runtime = Runtime::builder().name("marsh").carriers(2).build().unwrap();
        let (server, _fibers) = serve(&runtime);
        let url = format!("http://{}", server.local_addr());

        let mut session = Session::start(&url);
        session.wait_timeout("heron");
        session.wait_timeout("switches/s");
        let modes = tcgetattr(&session.terminal).unwrap().local_modes;
        assert!(!modes.contains(LocalModes::ECHO));
        session.press("s");
        session.wait_timeout("-since");
        session.press("/stork\r");
        session.wait_timeout("1/1 ");
        session.press("\r");
        session.wait_timeout("Esc back");
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            session.wait_timeout("top::wades");
        }
        session.press("\u{1b}");
        session.wait_timeout("q quit");
        session.press("p");
        session.wait_timeout("paused");
        session.press("p");
        // Make the terminal so narrow that the last words do not fit.
        resize(&session.terminal, 40);
        session.wait_timeout("…");
        session.press("q");
        session.finish();

        for signal in [Signal::INT, Signal::TERM] {
            let session = Session::start(&url);
            session.wait_timeout("q quit");
            let pid = Pid::from_child(&session.child);
            kill_process(pid, signal).unwrap();
            session.finish();
        }
        let mut session = Session::start(&url);
        session.wait_timeout("q quit");
        session.press("\u{3}");
        session.finish();
    }

    /// A program that reads keys from a terminal that is gone might wait forever, or spin.
    #[test]
    fn it_ends_with_its_terminal() {
        let _watchdog = a_minute();
        let runtime = Runtime::builder().name("marsh").carriers(1).build().unwrap();
        let (server, _fibers) = serve(&runtime);
        let mut session = Session::start(&format!("http://{}", server.local_addr()));
        session.wait_timeout("q quit");
        session.hang_up();
        session.child.wait().unwrap();
    }

    #[test]
    fn a_server_that_is_lost_is_told_and_found_again() {
        let _watchdog = a_minute();
        let runtime = Runtime::builder().name("marsh").carriers(1).build().unwrap();
        let (server, _fibers) = serve(&runtime);
        let address = server.local_addr();
        let mut session = Session::start(&format!("http://{address}"));
        session.wait_timeout("q quit");
        server.shutdown(Duration::ZERO).ok();
        session.wait_timeout("cannot connect");
        let router = Router::new().debug(Access::Loopback);
        let _server = Server::bind(address).runtime(runtime.handle()).start(router).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            // Look for a whole screen without the message.
            session.press("j");
            session.wait_timeout("Enter backtrace");
            session.wait_timeout("q quit");
            if !String::from_utf8_lossy(&session.seen.lock().unwrap()).contains("cannot connect") {
                break;
            }
            assert!(Instant::now() < deadline, "the view still shows the error");
        }
        session.press("q");
        session.finish();
    }
}
