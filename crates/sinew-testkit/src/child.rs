//! Runs the body of a test in a process of its own.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

/// The variable with the name of the test that the child process runs.
const VARIABLE: &str = "SINEW_TEST_CHILD";

/// The command that starts test binaries of another architecture: an emulator and its arguments,
/// separated by spaces.
const RUNNER: &str = "SINEW_TEST_RUNNER";

/// The exit status of a child, and its output.
#[derive(Debug)]
pub struct Outcome {
    /// The exit status.
    pub status: ExitStatus,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
}

impl Outcome {
    /// Whether the signal ended the child.
    pub fn died_of(&self, signal: i32) -> bool {
        // A shell or an emulator in between reports the signal as a number above 128.
        self.status.signal() == Some(signal) || self.status.code() == Some(128 + signal)
    }

    /// Fails unless the signal ended the child, and its standard error has all of `texts`.
    #[track_caller]
    pub fn assert_died(&self, signal: i32, texts: &[&str]) {
        assert!(self.died_of(signal), "expected signal {signal}: {self:#?}");
        for text in texts {
            assert!(self.stderr.contains(text), "missing {text:?}: {self:#?}");
        }
    }

    /// Fails unless the child succeeded.
    #[track_caller]
    pub fn assert_success(&self) {
        assert!(self.status.success(), "{self:#?}");
    }
}

/// Runs `body` in a new process and returns the outcome.
///
/// `test` is the full name of the calling test. The child is this test binary, told to run only
/// that test; in the child, this call runs `body` and exits.
///
/// # Panics
/// If no test is called `test`.
pub fn child(test: &str, body: impl FnOnce()) -> Outcome {
    child_with(test, |_| (), body)
}

/// Runs `body` in a new process, after `prepare` has changed its command. Otherwise like [`child`].
pub fn child_with(test: &str, prepare: impl FnOnce(&mut Command), body: impl FnOnce()) -> Outcome {
    if std::env::var(VARIABLE).is_ok_and(|name| name == test) {
        body();
        std::process::exit(0);
    }
    let binary = std::env::current_exe().expect("the test knows its own path");
    let runner = std::env::var(RUNNER).unwrap_or_default();
    let mut words = runner.split_whitespace();
    let mut command = match words.next() {
        Some(program) => {
            let mut command = Command::new(program);
            command.args(words).arg(binary);
            command
        }
        None => Command::new(binary),
    };
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, test)
        .env("RUST_BACKTRACE", "0");
    prepare(&mut command);
    let output = command.output().expect("the test binary can be started again");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!stdout.contains("running 0 tests"), "no test of this binary is called {test:?}");
    Outcome {
        status: output.status,
        stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
