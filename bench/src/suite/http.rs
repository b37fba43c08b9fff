//! The suite `http`: a client sends one request again and again.
//!
//! The loads do not include 25,000 connections, for which other projects have published figures.
//! Each connection needs a descriptor on both sides, and the machine that the targets come from
//! allows 20,000.

use super::{FLOOR, MAY, THREADS};
use super::{also, at_most, go_server, missing, server};
use crate::client::Load;
use crate::client::wrk::{self, Wrk};
use crate::floor::http as floor;
use crate::http::Answer::{Hello, Json};
use crate::measure::{Also, Benchmark, Contender, Serve, Work};
use crate::peer::{go, hyper, may_http, may_minihttp, nginx, sinew_http, threads_http};
use crate::target::{SUBJECT, Target};

/// may's own server library; the contender `may` is written by hand for this suite.
const MINIHTTP: &str = "may_minihttp";
const HYPER: &str = "hyper";
const NGINX: &str = "nginx";

/// sinew with a started fiber for each connection, with or without a request.
const STARTED: &str = "sinew-started";
const DEFERRED: &str = "sinew-deferred";

const P99: &str = "p99";
const MEMORY: &str = "memory";

/// The peers whose best sinew has to reach.
const BEST: &[&str] = &[MAY, MINIHTTP, HYPER, NGINX];

pub(crate) fn benchmarks() -> Vec<Benchmark> {
    vec![hello_100(), hello_1000(), hello_10000(), pipelined(), json(), tls()]
}

fn hello_100() -> Benchmark {
    hello("hello_100", "GET under wrk, 100 connections: requests per second", 100)
}

fn hello_1000() -> Benchmark {
    let mut hello = hello("hello_1000", "GET under wrk, 1,000 connections", 1_000);
    hello.targets.push(Target::at_least(1.5, &[THREADS]));
    hello
}

fn hello_10000() -> Benchmark {
    let mut hello = hello("hello_10000", "GET under wrk, 10,000 connections", 10_000);
    let memory = hello.also.iter_mut().find(|also| also.name == MEMORY);
    memory.expect("memory is measured").targets.push(at_most(0.5, &[HYPER]));
    hello
}

fn hello(name: &'static str, what: &'static str, connections: u64) -> Benchmark {
    Benchmark {
        contenders: plain(Load::Http(Wrk::new(connections))),
        targets: vec![Target::at_least(1.0, BEST)],
        also: figures(
            vec![at_most(1.0, BEST)],
            vec![at_most(0.6, &[MAY]), at_most(0.6, &[MINIHTTP])],
        ),
        ..empty(name, what)
    }
}

fn pipelined() -> Benchmark {
    Benchmark {
        contenders: plain(Load::Http(Wrk::new(100).pipelined())),
        // wrk does not measure the latency of pipelined requests.
        also: figures(vec![], vec![]).into_iter().filter(|also| also.name != P99).collect(),
        ..empty("pipelined", "GET under wrk, 100 connections with 16 requests under way on each")
    }
}

fn json() -> Benchmark {
    let load = Load::Http(Wrk::new(100));
    Benchmark {
        contenders: loaded(vec![
            server(SUBJECT, sinew_http::DEFAULT, || sinew_http::serve(Json), load),
            server(FLOOR, floor::SETTINGS, || floor::serve(Json), load),
            server(MAY, may_http::SETTINGS, || may_http::serve(Json), load),
            server(MINIHTTP, may_minihttp::SETTINGS, || may_minihttp::serve(Json), load),
            server(HYPER, hyper::SETTINGS, || hyper::serve(Json), load),
            go_server(go::serve_json, load),
            server(THREADS, threads_http::SETTINGS, || threads_http::serve(Json), load),
        ]),
        ..empty("json", "GET under wrk, 100 connections, an object is serialised for each request")
    }
}

fn tls() -> Benchmark {
    let load = Load::Http(Wrk::new(100).tls());
    Benchmark {
        contenders: loaded(vec![
            server(SUBJECT, sinew_http::TLS, sinew_http::serve_tls, load),
            server(MAY, may_http::TLS, may_http::serve_tls, load),
            server(HYPER, hyper::TLS, hyper::serve_tls, load),
        ]),
        ..empty("tls", "GET under wrk with TLS, 100 connections")
    }
}

/// Returns the contenders that send the greeting without TLS.
fn plain(load: Load) -> Vec<Contender> {
    loaded(vec![
        server(SUBJECT, sinew_http::DEFAULT, || sinew_http::serve(Hello), load),
        server(STARTED, sinew_http::STARTED, || sinew_http::serve_keeping(usize::MAX), load),
        server(DEFERRED, sinew_http::DEFERRED, || sinew_http::serve_keeping(0), load),
        server(FLOOR, floor::SETTINGS, || floor::serve(Hello), load),
        server(MAY, may_http::SETTINGS, || may_http::serve(Hello), load),
        server(MINIHTTP, may_minihttp::SETTINGS, || may_minihttp::serve(Hello), load),
        server(HYPER, hyper::SETTINGS, || hyper::serve(Hello), load),
        nginx_server(load),
        go_server(go::serve_hello, load),
        server(THREADS, threads_http::SETTINGS, || threads_http::serve(Hello), load),
    ])
}

fn nginx_server(load: Load) -> Contender {
    match nginx::settings() {
        Some(settings) => {
            let work = Work::Server(Serve::Foreign(nginx::start), load);
            Contender { name: NGINX, settings, work }
        }
        None => missing(NGINX, "", nginx::MISSING),
    }
}

/// Returns the contenders, or marks all of them as missing if wrk is not installed.
fn loaded(contenders: Vec<Contender>) -> Vec<Contender> {
    match wrk::is_there() {
        true => contenders,
        false => contenders.iter().map(|one| missing(one.name, "", wrk::MISSING)).collect(),
    }
}

/// Returns the figures beside the rate, with the targets for latency and user time.
fn figures(p99: Vec<Target>, user: Vec<Target>) -> Vec<Also> {
    vec![
        also(P99, "GET under wrk: latency p99", "us", p99),
        also("user", "GET under wrk: user time of the server", "us/request", user),
        also("system", "GET under wrk: system time of the server", "us/request", vec![]),
        also(MEMORY, "GET under wrk: resident memory of the server at the end", "MiB", vec![]),
    ]
}

/// Returns a benchmark without contenders, with the target of all benchmarks but `hello`.
fn empty(name: &'static str, what: &'static str) -> Benchmark {
    Benchmark {
        suite: "http",
        name,
        what,
        unit: "requests/s",
        contenders: Vec::new(),
        targets: vec![Target::at_least(1.1, &[HYPER])],
        also: figures(vec![], vec![]),
    }
}
