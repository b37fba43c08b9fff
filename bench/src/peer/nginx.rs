//! nginx, a program of its own. It answers without reading a file, and has its configuration in a
//! temporary directory.

use crate::http::{GREETING, TEXT};
use crate::server::{self, Foreign};
use std::fs::{create_dir_all, write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) const MISSING: &str = "not installed: there is no `nginx`, install nginx";

const WORKERS: usize = 2;

/// How long nginx may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the version and the settings; `None` if nginx is not installed.
pub(crate) fn settings() -> Option<&'static str> {
    static SETTINGS: OnceLock<Option<String>> = OnceLock::new();
    let known = SETTINGS.get_or_init(|| {
        // nginx prints for instance "nginx version: nginx/1.22.1", to standard error.
        let output = Command::new("nginx").arg("-v").output().ok()?;
        let text = String::from_utf8(output.stderr).ok()?;
        let version = text.trim().rsplit('/').next()?;
        Some(format!(
            "{version}, {WORKERS} workers, reuseport, access_log off, return 200; memory of \
             all its processes"
        ))
    });
    known.as_deref()
}

/// Starts nginx in the foreground.
pub(crate) fn start() -> Result<Foreign, String> {
    let files = server::allow_files();
    // The port stays free until nginx takes it: the kernel hands out other ports first.
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map_err(|error| format!("cannot find a port: {error}"))?
        .port();
    let directory = std::env::temp_dir().join(format!("sinew-bench-nginx-{}", std::process::id()));
    let file = directory.join("nginx.conf");
    create_dir_all(&directory)
        .and_then(|()| write(&file, configuration(&directory, port, files)))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    let child = Command::new("nginx")
        .arg("-p")
        .arg(&directory)
        .arg("-c")
        .arg(&file)
        .args(["-e", "stderr"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot run nginx: {error}"))?;
    let mut nginx = Foreign::new(child, port, directory);
    let deadline = Instant::now() + PATIENCE;
    while nginx.processes().len() <= WORKERS || TcpStream::connect(("127.0.0.1", port)).is_err() {
        if nginx.has_ended() || Instant::now() > deadline {
            return Err("nginx does not start".to_owned());
        }
        sleep(Duration::from_millis(10));
    }
    Ok(nginx)
}

/// Returns the configuration. All temporary files go to `directory`, so that nginx needs no rights
/// elsewhere.
fn configuration(directory: &Path, port: u16, files: u64) -> String {
    let places: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("    {what}_temp_path {}/{what};\n", directory.display()))
        .concat();
    // Each worker may take all connections, because the kernel decides how many each gets.
    format!(
        "daemon off;
worker_processes {WORKERS};
worker_rlimit_nofile {files};
error_log stderr crit;
pid {directory}/nginx.pid;
events {{
    worker_connections {files};
}}
http {{
{places}    access_log off;
    keepalive_timeout 1h;
    keepalive_requests 1000000000;
    default_type {TEXT};
    server {{
        listen 127.0.0.1:{port} backlog={backlog} reuseport;
        location / {{
            return 200 \"{GREETING}\";
        }}
    }}
}}
",
        directory = directory.display(),
        backlog = server::BACKLOG,
    )
}
