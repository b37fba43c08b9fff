//! The metrics, and a strict parser of their text format.

use crate::{get, spawn, start, wait_suspended, waits_for_the_tide};
use sinew::Runtime;
use sinew_http::debug::Access;
use sinew_testkit::watch::a_minute;
use std::collections::{HashMap, HashSet};

#[test]
fn metrics_are_well_formed() {
    let _watchdog = a_minute();
    let name = "odd \"name\" \\ of\na runtime";
    let runtime = Runtime::builder().name(name).carriers(2).measure(true).build().unwrap();
    // Without a suffix, a second runtime of this name would have equal labels.
    let twin = Runtime::builder().name(name).carriers(1).build().unwrap();
    let server = start(&runtime, Access::Loopback);
    let fiber = spawn(&runtime, "waits", waits_for_the_tide);
    wait_suspended(&fiber.fiber());
    let answer = get(&server, "/metrics");
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4"), "{}", answer.head);
    let metrics = parse(&answer.body);

    let runtimes: HashSet<&str> =
        metrics["sinew_switches_total"].iter().map(|sample| &*sample.labels["runtime"]).collect();
    assert!(runtimes.contains(name) && runtimes.contains(&*format!("{name} (2)")), "{runtimes:?}");
    let of = |metric: &str, label: &str, value: &str| {
        let mine = |sample: &&Sample| {
            sample.labels["runtime"] == name && sample.labels.get(label).is_some_and(|v| v == value)
        };
        metrics[metric].iter().find(mine).unwrap().value
    };
    assert!(of("sinew_fibers", "state", "suspended") >= 1.0);
    assert!(of("sinew_waits", "kind", "park") >= 1.0);
    assert!(of("sinew_stacks", "state", "in_use") >= 1.0);
    assert!(of("sinew_switches_total", "carrier", "0") >= 0.0);
    // This request is still under way.
    let served = |metric: &str, status: Option<&str>| {
        let address = server.local_addr().to_string();
        let mine = |sample: &&Sample| {
            sample.labels["server"] == address
                && sample.labels.get("status").map(|status| &**status) == status
        };
        metrics[metric].iter().find(mine).unwrap().value
    };
    assert_eq!(served("sinew_http_connections", None), 1.0);
    assert_eq!(served("sinew_http_connections_total", None), 1.0);
    assert_eq!(served("sinew_http_requests_total", None), 1.0);
    assert_eq!(served("sinew_http_responses_total", Some("2xx")), 0.0);
    assert!(metrics["sinew_run_time_seconds"].len() > 3);
    assert!(metrics["sinew_latency_seconds"].len() > 3);
    if cfg!(target_os = "linux") {
        for name in [
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_cpu_seconds_total",
            "process_start_time_seconds",
        ] {
            assert!(metrics[name][0].value > 0.0, "{name}");
        }
    }
    drop(twin);
}

pub(crate) struct Sample {
    suffix: String,
    pub(crate) labels: HashMap<String, String>,
    pub(crate) value: f64,
}

/// Parses the text format. Panics if it is malformed.
pub(crate) fn parse(text: &str) -> HashMap<String, Vec<Sample>> {
    assert!(text.ends_with('\n'));
    let mut metrics: HashMap<String, Vec<Sample>> = HashMap::new();
    let mut kinds: HashMap<String, String> = HashMap::new();
    let (mut helped, mut current) = (String::new(), String::new());
    let mut seen = HashSet::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(is_name(name) && help.ends_with('.'), "{line}");
            helped = name.into();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, helped, "each TYPE follows its HELP");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(name.starts_with("sinew_") || name.starts_with("process_"), "{line}");
            assert!(kinds.insert(name.into(), kind.into()).is_none(), "{name} is there twice");
            metrics.insert(name.into(), Vec::new());
            current = name.into();
        } else {
            assert!(seen.insert(line[..line.rfind(' ').unwrap()].to_owned()), "twice: {line}");
            let (name, labels, value) = sample(line);
            let suffix = name.strip_prefix(&current).unwrap_or_else(|| panic!("stray: {line}"));
            let histogram = kinds[&current] == "histogram";
            let allowed: &[&str] = if histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(allowed.contains(&suffix), "{line}");
            let suffix = suffix.to_owned();
            metrics.get_mut(&current).unwrap().push(Sample { suffix, labels, value });
        }
    }
    for (name, kind) in kinds.iter().filter(|(_, kind)| *kind == "histogram") {
        assert_eq!(kind, "histogram");
        check_histogram(&metrics[name]);
    }
    metrics
}

/// Checks that buckets grow, and that the last one counts everything.
fn check_histogram(samples: &[Sample]) {
    let (mut last_bound, mut last_count) = (f64::NEG_INFINITY, 0.0);
    let mut sums = 0;
    for sample in samples {
        match &*sample.suffix {
            "_bucket" => {
                let le = &sample.labels["le"];
                let bound = if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() };
                assert!(bound > last_bound && sample.value >= last_count);
                (last_bound, last_count) = (bound, sample.value);
            }
            "_sum" => sums += 1,
            _ => {
                assert_eq!((last_bound, last_count), (f64::INFINITY, sample.value));
                (last_bound, last_count) = (f64::NEG_INFINITY, 0.0);
            }
        }
    }
    assert_eq!(sums, samples.iter().filter(|sample| sample.suffix == "_count").count());
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The name, the labels and the value of one line.
fn sample(line: &str) -> (&str, HashMap<String, String>, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = HashMap::new();
    if let Some(list) = rest.strip_prefix('{') {
        rest = list;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(is_name(label), "{line}");
            let mut value = String::new();
            let mut chars = after.char_indices();
            let close = loop {
                match chars.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        escaped @ ('\\' | '"') => escaped,
                        other => panic!("\\{other} in {line}"),
                    }),
                    (_, char) => value.push(char),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = &after[close + 1..];
            match rest.as_bytes()[0] {
                b',' => rest = &rest[1..],
                b'}' => break,
                other => panic!("{other} in {line}"),
            }
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').unwrap().parse().unwrap();
    (name, labels, value)
}
