//! The builder of a child process: the program, its arguments and its surroundings.

use super::{Child, CommandArgs, CommandEnvs, ExitStatus, Output, Stdio};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::Path;
use std::process;

/// A program to start, with its arguments and surroundings: `std::process::Command` for fibers.
///
/// # Examples
/// ```
/// use sinew::process::Command;
///
/// sinew::run(|| {
///     let output = Command::new("echo").arg("hello").output()?;
///     assert!(output.status.success());
///     assert_eq!(output.stdout, b"hello\n");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Command {
    std: process::Command,
    /// Which of the three standard descriptors the caller has set: input, output, error. The method
    /// that starts the program chooses the others.
    chosen: [bool; 3],
    kill_on_drop: bool,
}

impl Command {
    /// Makes a command for a program. `program` is a path, or a name that is searched for in
    /// `PATH`.
    ///
    /// By default the program has no arguments, and the environment, directory and standard
    /// descriptors of this process.
    ///
    /// # Examples
    /// ```
    /// let status = sinew::process::Command::new("true").status()?;
    /// assert!(status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        process::Command::new(program).into()
    }

    /// Adds an argument. No shell interprets it.
    ///
    /// # Examples
    /// ```
    /// let output = sinew::process::Command::new("echo").arg("$HOME; ls").output()?;
    /// assert_eq!(output.stdout, b"$HOME; ls\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn arg<S: AsRef<OsStr>>(&mut self, argument: S) -> &mut Command {
        self.std.arg(argument);
        self
    }

    /// Adds several arguments.
    ///
    /// # Examples
    /// ```
    /// let output = sinew::process::Command::new("echo").args(["one", "two"]).output()?;
    /// assert_eq!(output.stdout, b"one two\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn args<I, S>(&mut self, arguments: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.std.args(arguments);
        self
    }

    /// Sets an environment variable.
    ///
    /// # Examples
    /// ```
    /// let mut command = sinew::process::Command::new("sh");
    /// let output = command.args(["-c", "echo $COLOUR"]).env("COLOUR", "red").output()?;
    /// assert_eq!(output.stdout, b"red\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn env<K, V>(&mut self, key: K, value: V) -> &mut Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.std.env(key, value);
        self
    }

    /// Sets several environment variables.
    ///
    /// # Examples
    /// ```
    /// let mut command = sinew::process::Command::new("sh");
    /// let output = command.args(["-c", "echo $A$B"]).envs([("A", "1"), ("B", "2")]).output()?;
    /// assert_eq!(output.stdout, b"12\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn envs<I, K, V>(&mut self, variables: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.std.envs(variables);
        self
    }

    /// Removes an environment variable.
    ///
    /// # Examples
    /// ```
    /// let mut command = sinew::process::Command::new("sh");
    /// let output = command.args(["-c", "echo $HOME"]).env_remove("HOME").output()?;
    /// assert_eq!(output.stdout, b"\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.std.env_remove(key);
        self
    }

    /// Removes all environment variables: the inherited ones, and those that were set here.
    ///
    /// # Examples
    /// ```
    /// let output = sinew::process::Command::new("env").env_clear().env("A", "1").output()?;
    /// assert_eq!(output.stdout, b"A=1\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn env_clear(&mut self) -> &mut Command {
        self.std.env_clear();
        self
    }

    /// Sets the directory that the program starts in.
    ///
    /// # Examples
    /// ```
    /// let output = sinew::process::Command::new("pwd").current_dir("/").output()?;
    /// assert_eq!(output.stdout, b"/\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn current_dir<P: AsRef<Path>>(&mut self, directory: P) -> &mut Command {
        self.std.current_dir(directory);
        self
    }

    /// Sets the standard input of the program. By default it is inherited from this process; for
    /// [`output`](Self::output) it is empty.
    ///
    /// # Examples
    /// ```
    /// use sinew::process::{Command, Stdio};
    ///
    /// assert!(Command::new("cat").stdin(Stdio::null()).status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stdin<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Command {
        self.std.stdin(stdio);
        self.chosen[0] = true;
        self
    }

    /// Sets the standard output of the program. By default it is inherited from this process; for
    /// [`output`](Self::output) it is a pipe.
    ///
    /// # Examples
    /// ```
    /// use sinew::process::{Command, Stdio};
    ///
    /// assert!(Command::new("echo").arg("hello").stdout(Stdio::null()).status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stdout<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Command {
        self.std.stdout(stdio);
        self.chosen[1] = true;
        self
    }

    /// Sets the standard error of the program. By default it is inherited from this process; for
    /// [`output`](Self::output) it is a pipe.
    ///
    /// # Examples
    /// ```
    /// use sinew::process::{Command, Stdio};
    ///
    /// assert!(!Command::new("ls").arg("/no/such").stderr(Stdio::null()).status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stderr<T: Into<Stdio>>(&mut self, stdio: T) -> &mut Command {
        self.std.stderr(stdio);
        self.chosen[2] = true;
        self
    }

    /// Sets whether dropping a [`Child`] kills its process, if no caller has waited for its end.
    /// The default is no.
    ///
    /// A thread of the pool of [`blocking`](crate::blocking()) then takes the status of the killed
    /// process, so that no zombie is left. The setting also applies to [`output`](Self::output) and
    /// [`status`](Self::status): a fiber that is cancelled in one of these calls kills the program
    /// that it waits for.
    ///
    /// # Examples
    /// ```
    /// use sinew::process::Command;
    /// use std::time::Duration;
    ///
    /// sinew::run(|| {
    ///     let mut command = Command::new("sleep");
    ///     command.arg("1000").kill_on_drop(true);
    ///     let late = sinew::timeout(Duration::from_millis(10), || command.status());
    ///     assert!(late.is_err()); // and the program is gone
    /// });
    /// ```
    pub fn kill_on_drop(&mut self, wanted: bool) -> &mut Command {
        self.kill_on_drop = wanted;
        self
    }

    /// Starts the program.
    ///
    /// Waits until the program has started or failed to start. A fiber that is cancelled meanwhile
    /// still gets the child. If the caller is a fiber, a thread of the pool of
    /// [`blocking`](crate::blocking()) starts the program. Do not rely on properties that the
    /// program gets from that thread rather than from the process. For example, the kernel sends
    /// the signal of `PR_SET_PDEATHSIG` when that thread ends. To start the program on the carrier
    /// itself, use `Child::from(command.as_std_mut().spawn()?)`.
    ///
    /// # Errors
    /// Fails if there is no such program, if it may not be executed, or if there are too many
    /// processes.
    ///
    /// # Examples
    /// ```
    /// use sinew::process::Command;
    ///
    /// sinew::run(|| {
    ///     let mut child = Command::new("true").spawn()?;
    ///     child.wait()?;
    ///     let error = Command::new("no-such-program").spawn().unwrap_err();
    ///     assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn(&mut self) -> io::Result<Child> {
        // Starting a program stops the thread until the program was loaded: 0.1 to 4 ms for
        // `/bin/true` by `posix_spawn`. Where std has to `fork` (a `pre_exec`, other users), it
        // takes 60 ms and more in a process that uses 1 GiB, because its page tables are copied (2
        // virtual processors, Linux 6.18, November 2026). The way to the pool and back takes 6 us
        // there, 60 at worst.
        let child = crate::blocking(|| self.std.spawn())?;
        Ok(Child::new(child, self.kill_on_drop))
    }

    /// Starts the program, waits until it has ended, and returns its output.
    ///
    /// By default its standard output and standard error are pipes, and its standard input is
    /// empty. A cancelled fiber is unwound from this wait. The program goes on, unless
    /// [`kill_on_drop`](Self::kill_on_drop) is set.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn) and [`Child::wait_with_output`]. A program that fails is not an
    /// error here: look at its status.
    ///
    /// # Examples
    /// ```
    /// let output = sinew::process::Command::new("echo").arg("hello").output()?;
    /// assert_eq!(output.stdout, b"hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn output(&mut self) -> io::Result<Output> {
        let [stdin, stdout, stderr] = self.chosen;
        if !stdin {
            self.std.stdin(Stdio::null());
        }
        if !stdout {
            self.std.stdout(Stdio::piped());
        }
        if !stderr {
            self.std.stderr(Stdio::piped());
        }
        let child = self.spawn();
        // The command may be used again, with its own choices.
        if !stdin {
            self.std.stdin(Stdio::inherit());
        }
        if !stdout {
            self.std.stdout(Stdio::inherit());
        }
        if !stderr {
            self.std.stderr(Stdio::inherit());
        }
        child?.wait_with_output()
    }

    /// Starts the program, and waits until it has ended.
    ///
    /// A cancelled fiber is unwound from this wait. The program goes on, unless
    /// [`kill_on_drop`](Self::kill_on_drop) is set.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn) and [`Child::wait`]. A program that fails is not an error here:
    /// look at its status.
    ///
    /// # Examples
    /// ```
    /// let status = sinew::process::Command::new("false").status()?;
    /// assert_eq!(status.code(), Some(1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Returns the program.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::process::Command::new("ls").get_program(), "ls");
    /// ```
    pub fn get_program(&self) -> &OsStr {
        self.std.get_program()
    }

    /// Returns the arguments, without the name of the program.
    ///
    /// # Examples
    /// ```
    /// let mut command = sinew::process::Command::new("ls");
    /// assert!(command.args(["-l", "-a"]).get_args().eq(["-l", "-a"]));
    /// ```
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.std.get_args()
    }

    /// Returns the environment variables that were set. Removed variables have the value `None`.
    ///
    /// # Examples
    /// ```
    /// let mut command = sinew::process::Command::new("ls");
    /// command.env("A", "1").env_remove("B");
    /// assert_eq!(command.get_envs().filter(|(_, value)| value.is_none()).count(), 1);
    /// ```
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.std.get_envs()
    }

    /// Returns the directory, if one was set.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::process::Command::new("ls").get_current_dir(), None);
    /// ```
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.std.get_current_dir()
    }

    /// Returns whether dropping a [`Child`] kills its process; see
    /// [`kill_on_drop`](Self::kill_on_drop).
    ///
    /// # Examples
    /// ```
    /// assert!(!sinew::process::Command::new("ls").get_kill_on_drop());
    /// ```
    pub fn get_kill_on_drop(&self) -> bool {
        self.kill_on_drop
    }

    /// Returns the underlying command of the standard library.
    ///
    /// # Examples
    /// ```
    /// let command = sinew::process::Command::new("ls");
    /// assert_eq!(command.as_std().get_program(), "ls");
    /// ```
    pub fn as_std(&self) -> &process::Command {
        &self.std
    }

    /// Returns the underlying command of the standard library, to be changed through the extension
    /// traits of the standard library. [`output`](Self::output) does not know of standard
    /// descriptors that are set there, and replaces them.
    ///
    /// # Examples
    /// ```
    /// use std::os::unix::process::CommandExt;
    ///
    /// let mut command = sinew::process::Command::new("true");
    /// command.as_std_mut().process_group(0);
    /// assert!(command.status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn as_std_mut(&mut self) -> &mut process::Command {
        &mut self.std
    }

    /// Converts this into the command of the standard library. The setting of
    /// [`kill_on_drop`](Self::kill_on_drop) is lost.
    ///
    /// # Examples
    /// ```
    /// let command = sinew::process::Command::new("ls").into_std();
    /// assert_eq!(command.get_program(), "ls");
    /// ```
    pub fn into_std(self) -> process::Command {
        self.std
    }
}

impl From<process::Command> for Command {
    /// Converts a command of the standard library. [`output`](Self::output) does not know of
    /// standard descriptors that are set in it, and replaces them.
    fn from(std: process::Command) -> Command {
        Command { std, chosen: [false; 3], kill_on_drop: false }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.std.fmt(f)
    }
}
