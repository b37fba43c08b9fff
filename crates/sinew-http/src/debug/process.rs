//! Facts about this process, from `/proc` where it exists.

use rustix::param::{clock_ticks_per_second, page_size};
use serde::Serialize;
use std::collections::HashMap;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Facts about the process. `None` where the system does not report them.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) uptime_seconds: Option<f64>,
    /// In seconds since 1970.
    pub(super) start_seconds: Option<f64>,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) threads: Option<u64>,
    pub(super) open_fds: Option<u64>,
    pub(super) max_fds: Option<u64>,
}

impl Process {
    pub(super) fn look() -> Process {
        let stat = fs::read_to_string("/proc/self/stat").ok();
        let stat = stat.as_deref().and_then(Stat::parse);
        let number = |get: fn(&Stat) -> u64| stat.as_ref().map(get);
        let seconds = |get: fn(&Stat) -> u64| number(get).map(in_seconds);
        let since_boot = seconds(|stat| stat.start);
        Process {
            pid: std::process::id(),
            uptime_seconds: since_boot
                .and_then(|start| Some((up()? - start).max(0.0)))
                .filter(|uptime| uptime.is_finite()),
            start_seconds: since_boot.and_then(|start| Some(booted()? as f64 + start)),
            cpu_seconds: seconds(|stat| stat.ticks),
            resident_bytes: number(|stat| stat.resident).map(|pages| pages * page_size() as u64),
            virtual_bytes: number(|stat| stat.virtual_bytes),
            threads: number(|stat| stat.threads),
            // Do not count the descriptor of the listing itself.
            open_fds: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|fds| (fds.count() as u64).saturating_sub(1)),
            max_fds: limit_of_files(),
        }
    }
}

/// The time since 1970.
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The processor time of each thread, by its name. Names that several threads share are left out.
pub(super) fn threads() -> HashMap<Vec<u8>, f64> {
    let mut times: HashMap<Vec<u8>, Option<f64>> = HashMap::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let path = task.path();
        let Ok(mut name) = fs::read(path.join("comm")) else { continue };
        let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
        let time = Stat::parse(&stat).map(|stat| in_seconds(stat.ticks));
        name.truncate(name.trim_ascii_end().len());
        times.entry(name).and_modify(|time| *time = None).or_insert(time);
    }
    times.into_iter().filter_map(|(name, time)| Some((name, time?))).collect()
}

/// The part of a thread's name that the system keeps: its first 15 bytes.
pub(super) fn kept_of(name: &str) -> &[u8] {
    const MOST: usize = 15;
    let name = name.as_bytes();
    &name[..name.len().min(MOST)]
}

/// Some fields of `/proc/self/stat`.
struct Stat {
    /// Processor time, of user and system.
    ticks: u64,
    threads: u64,
    start: u64,
    virtual_bytes: u64,
    resident: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The second field, the name, may contain spaces and parentheses. Count from the third
        // field, which follows the last parenthesis.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Stat {
            ticks: number(14)? + number(15)?,
            threads: number(20)?,
            start: number(22)?,
            virtual_bytes: number(23)?,
            resident: number(24)?,
        })
    }
}

fn in_seconds(ticks: u64) -> f64 {
    ticks as f64 / clock_ticks_per_second() as f64
}

/// How many seconds the system has been up.
fn up() -> Option<f64> {
    fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()
}

/// When the system was started, in seconds since 1970.
fn booted() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn limit_of_files() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194304 1 0 0 0 40 2 0 0 20 0 3 0 500 4096 9 1 2";
        let stat = Stat::parse(text).unwrap();
        let fields = (stat.ticks, stat.threads, stat.start, stat.virtual_bytes, stat.resident);
        assert_eq!(fields, (42, 3, 500, 4096, 9));
    }
}
