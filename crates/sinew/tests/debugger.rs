//! Runs `tools/gdb` on a program that has stopped, and on the core file of a program that has
//! ended.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(clippy::print_stdout, reason = "what is left out is said")]

use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../examples/stuck.rs"]
mod stuck;

/// The program under the debugger. The other tests run it with arguments, and it aborts.
#[test]
#[ignore = "aborts, to be debugged"]
fn is_stuck() {
    stuck::main().unwrap();
}

/// The command line that runs this program as the stuck one.
fn program() -> Vec<String> {
    let me = std::env::current_exe().unwrap().display().to_string();
    [&me, "--exact", "is_stuck", "--include-ignored"].map(str::to_owned).into()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/gdb/sinew.py")
}

/// Returns the output of gdb, or `None` if gdb cannot be used.
fn gdb(arguments: &[&str], program: &[&str]) -> Option<String> {
    let mut command = Command::new("gdb");
    command.args(["-q", "-batch", "-nx"]);
    arguments.iter().for_each(|argument| {
        command.args(["-ex", argument]);
    });
    let output = match command.args(program).output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: there is no gdb ({error}); install gdb");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("ptrace: Operation not permitted") {
        println!("skipped: this machine lets nobody debug");
        return None;
    }
    Some(format!("{text}{errors}"))
}

fn check(text: &str) {
    for depth in 0..3 {
        assert!(text.contains(&format!("\"depth {depth}\": waits for park")), "{text}");
    }
    assert!(text.contains("waits for something to read"), "{text}");
    assert!(text.matches("waits_for_a_signal_that_never_comes").count() >= 3, "{text}");
    assert_eq!(text.matches("stuck::recurses (").count(), 6, "{text}");
    assert!(text.contains("there is no fiber 99999"), "{text}");
}

#[test]
fn fibers_of_a_program_that_has_stopped() {
    let source = format!("source {}", script().display());
    let commands = ["run", &source, "fibers", "fiber apply all bt", "fiber 99999 bt"];
    let program = program();
    let mut arguments = vec!["--args"];
    arguments.extend(program.iter().map(String::as_str));
    if let Some(text) = gdb(&commands, &arguments) {
        check(&text);
    }
}

#[test]
fn fibers_of_a_core_file() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.trim() != "core" {
        println!("skipped: core files go elsewhere here ({})", pattern.trim());
        return;
    }
    let folder = std::env::temp_dir().join(format!("sinew-core-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = program();
    let run = format!("ulimit -c unlimited; exec {}", program.join(" "));
    let ended = Command::new("sh").args(["-c", &run]).current_dir(&folder).output().unwrap();
    assert!(!ended.status.success());
    let core = std::fs::read_dir(&folder).unwrap().next().map(|entry| entry.unwrap().path());
    let Some(core) = core else {
        println!("skipped: no core file was written");
        return;
    };
    let source = format!("source {}", script().display());
    let commands = [&*source, "fibers", "fiber apply all bt", "fiber 99999 bt"];
    let text = gdb(&commands, &[&program[0], core.to_str().unwrap()]);
    std::fs::remove_dir_all(&folder).unwrap();
    if let Some(text) = text {
        check(&text);
    }
}
