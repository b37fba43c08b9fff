//! fio, the reference for reading files, a program of its own.

use crate::file;
use serde_json::Value;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

pub(crate) const MISSING: &str = "not installed: there is no `fio`, install fio";

/// Settings that make fio faster: it does not record the blocks that it has read, and takes no time
/// stamp for each read.
const FAST: [&str; 2] = ["--norandommap", "--gtod_reduce=1"];

/// The way in which fio reads.
#[derive(Clone, Copy)]
pub(crate) enum Engine {
    /// Calls `pread`, one at a time at any depth.
    Psync,
    /// io_uring with one read at a time.
    Uring,
    /// io_uring with sixteen reads, which fio submits together.
    Uring16,
}

impl Engine {
    fn options(self) -> &'static [&'static str] {
        match self {
            Engine::Psync => &["--ioengine=psync", "--iodepth=1"],
            Engine::Uring => {
                &["--ioengine=io_uring", "--iodepth=1", "--fixedbufs=1", "--registerfiles=1"]
            }
            Engine::Uring16 => &[
                "--ioengine=io_uring",
                "--iodepth=16",
                "--iodepth_batch_submit=16",
                "--iodepth_batch_complete_min=1",
                "--iodepth_batch_complete_max=16",
                "--fixedbufs=1",
                "--registerfiles=1",
            ],
        }
    }

    /// Returns the version and the settings; `None` if fio is not installed.
    pub(crate) fn settings(self) -> Option<&'static str> {
        static VERSION: OnceLock<Option<[String; 3]>> = OnceLock::new();
        let known = VERSION.get_or_init(|| {
            let output = Command::new("fio").arg("--version").output().ok()?;
            let version = String::from_utf8(output.stdout).ok()?;
            Some([Engine::Psync, Engine::Uring, Engine::Uring16].map(|engine| {
                let options: Vec<_> = engine.options().iter().chain(&FAST).copied().collect();
                format!("{} {}", version.trim(), options.join(" "))
            }))
        });
        known.as_ref().map(|known| known[self as usize].as_str())
    }

    /// Reads for `time`; returns the reads per second.
    pub(crate) fn read(self, time: Duration) -> Result<Vec<f64>, String> {
        let output = Command::new("fio")
            .args(["--name=sinew", "--rw=randread", "--bs=4k", "--size=256m", "--direct=0"])
            .args(["--readonly", "--thread", "--time_based", "--output-format=json"])
            .arg(format!("--runtime={}ms", time.as_millis()))
            .arg(format!("--filename={}", file::path()))
            .args(self.options())
            .args(FAST)
            .output()
            .map_err(|error| format!("cannot run fio: {error}"))?;
        let rate = serde_json::from_slice(&output.stdout)
            .ok()
            .and_then(|report: Value| report["jobs"][0]["read"]["iops"].as_f64());
        match rate {
            Some(rate) if rate > 0.0 => Ok(vec![rate]),
            _ => Err(format!("fio: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }
}
