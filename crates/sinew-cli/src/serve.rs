//! `sinew serve`: a server that needs no configuration, and shows its own fibers.

mod ending;

use sinew::io::LineLog;
use sinew_http::{Files, Limits, Request, Response, Router, Server, ServerHandle, Tls};
use std::fmt::{self, Write};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The options of `sinew serve`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The address to listen at; port 0 means any free port.
    #[arg(long, short, default_value = "127.0.0.1:8080", value_name = "HOST:PORT", value_parser = address)]
    listen: String,

    /// A directory to serve under /files/.
    #[arg(long, short, value_name = "DIRECTORY")]
    files: Option<PathBuf>,

    /// List directories that have no index.html.
    #[arg(long, requires = "files")]
    listing: bool,

    /// How many threads run the fibers; by default one for each processor.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    carriers: Option<u16>,

    /// The certificate chain for HTTPS, in PEM.
    #[arg(long, requires = "key", value_name = "FILE")]
    cert: Option<PathBuf>,

    /// The key of the certificate, in PEM.
    #[arg(long, requires = "cert", value_name = "FILE")]
    key: Option<PathBuf>,

    /// Speak HTTPS with a new self-signed certificate, for development.
    #[arg(long, conflicts_with = "cert")]
    self_signed: bool,

    /// Print a line for each request.
    #[arg(long)]
    log: bool,

    /// How many connections may be open at a time.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,

    /// The address of the admin listener, which serves /debug/ and /metrics; by default
    /// 127.0.0.1:8081, if that is free. At a loopback address it answers only programs on this
    /// machine.
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    admin: Option<String>,

    /// Do not open the admin listener.
    #[arg(long, alias = "no-debug", conflicts_with = "admin")]
    no_admin: bool,

    /// How many seconds running requests may still take after a signal asked the server to end.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    patience: u64,
}

/// Checks that an address can be looked up.
fn address(text: &str) -> Result<String, String> {
    match text.to_socket_addrs() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("{error}; give a host and a port, such as 127.0.0.1:8080")),
    }
}

/// If the shutdown takes longer than this, the server reports the open connections.
const NOTICEABLE: Duration = Duration::from_millis(100);

/// Serves until a signal asks it to end.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    have_more_descriptors();
    let mut builder = sinew::Runtime::builder().name("serve").measure(true);
    if let Some(carriers) = options.carriers {
        builder = builder.carriers(carriers.into());
    }
    let runtime = builder.build()?;
    let asked_to_end = ending::hear()?;
    let server = start(options, ADMIN, &runtime)?;
    print(welcome(options, &server).trim_end());
    let patience = Duration::from_secs(options.patience);
    runtime.run(move || {
        asked_to_end.wait();
        let ended = sinew::scope(|s| {
            // Idle connections are closed at once, and need no message.
            let patient = s.spawn(|| {
                sinew::sleep(NOTICEABLE);
                let count = match server.connections() {
                    1 => "one connection".to_owned(),
                    count => format!("{count} connections"),
                };
                warn(format_args!("waiting for {count}; Ctrl-C again ends the server now"));
            });
            let ended = server.shutdown(patience);
            patient.fiber().cancel();
            ended
        });
        ended.map_err(io::Error::other)
    })
}

/// Starts the server. If the user has not chosen an admin address, the admin listener is at
/// `usual_admin`. If that address is taken, the server starts without an admin listener.
fn start(
    options: &Options,
    usual_admin: &str,
    runtime: &sinew::Runtime,
) -> io::Result<ServerHandle> {
    let mut router = Router::new().get("/", hello);
    if let Some(root) = &options.files {
        let files = Files::new(root)?.prefix("/files").listing(options.listing);
        for path in ["/files", "/files/", "/files/{*path}"] {
            router = router.get(path, files.clone());
        }
    }
    let mut server = Server::bind(&*options.listen).runtime(runtime.handle());
    if let Some(count) = options.connections {
        server = server.limits(Limits::default().connections(count as usize));
    }
    if let (Some(cert), Some(key)) = (&options.cert, &options.key) {
        server = server.tls(Tls::from_pem_files(cert, key)?);
    } else if options.self_signed {
        server = server.tls(Tls::self_signed(["localhost", "127.0.0.1", "::1"])?);
    }
    if options.log {
        server = server.access_log(|entry| print(entry));
        server = server.problem_log(|problem| warn(problem));
    }
    let mut without_admin = None;
    match admin_listener(options, usual_admin) {
        Ok(Some(listener)) => server = server.admin_listener(listener),
        Ok(None) => {}
        Err(error) if options.admin.is_some() => return Err(advise(error, "--admin")),
        Err(error) => without_admin = Some(error),
    }
    let server = server.start(router).map_err(|error| advise(error, "--listen"))?;
    if let Some(error) = without_admin {
        warn(format_args!("no admin listener: {error}; --admin chooses another address"));
    }
    Ok(server)
}

/// The default address of the admin listener.
const ADMIN: &str = "127.0.0.1:8081";

fn admin_listener(options: &Options, usual: &str) -> io::Result<Option<TcpListener>> {
    if options.no_admin {
        return Ok(None);
    }
    let address = options.admin.as_deref().unwrap_or(usual);
    TcpListener::bind(address).map(Some).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen at {address}: {error}"))
    })
}

/// Adds advice to the error of an address at which the server cannot listen. `option` is the
/// command line option that has chosen the address.
fn advise(error: io::Error, option: &str) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("end the program that listens there, or choose another with {option}")
        }
        io::ErrorKind::PermissionDenied => {
            format!("ports below 1024 may need privileges; choose another with {option}")
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {advice}"))
}

/// How many greetings were sent.
static GREETED: AtomicU64 = AtomicU64::new(0);

/// Answers with the name of the serving fiber and the number of its carrier.
fn hello(_: Request) -> Response {
    let fiber = sinew::current();
    let carrier = sinew::current_carrier().unwrap_or_default();
    let carriers = sinew::RuntimeHandle::current().carriers();
    let count = 1 + GREETED.fetch_add(1, Ordering::Relaxed);
    Response::text(format!(
        "hello from fiber {} ({}) on carrier {carrier} of {carriers}; you are visitor {count}\n",
        fiber.id(),
        fiber.name().unwrap_or("without a name"),
    ))
}

/// The text that the user sees at the start.
fn welcome(options: &Options, server: &ServerHandle) -> String {
    let mut text = String::new();
    let mut say = |line: fmt::Arguments<'_>| _ = writeln!(text, "{line}");
    let scheme = if options.cert.is_some() || options.self_signed { "https" } else { "http" };
    let local = server.local_addr();
    let base = format!("{scheme}://{}", reachable(local));
    say(format_args!("{base}/               says which fiber answers, on which carrier"));
    if let Some(root) = &options.files {
        let advice = if options.listing { "" } else { "; --listing lists directories" };
        say(format_args!("{base}/files/         {}{advice}", root.display()));
    }
    if let Some(admin) = server.admin_addr() {
        let base = format!("http://{}", reachable(admin));
        say(format_args!("{base}/debug/fibers   what every fiber does; or: sinew top {base}"));
        say(format_args!("{base}/metrics        for Prometheus"));
    }
    if local.ip().is_unspecified() {
        say(format_args!("The server listens at all addresses of this machine, {local}."));
    }
    if let Some(admin) = server.admin_addr().filter(|admin| !admin.ip().is_loopback()) {
        say(format_args!("The admin listener answers every client that can reach {admin}."));
    }
    say(format_args!("Ctrl-C ends it."));
    text
}

/// The address at which programs on this machine reach a server. It replaces an unspecified address
/// by loopback.
fn reachable(local: SocketAddr) -> SocketAddr {
    let ip = match local.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, local.port())
}

/// Raises the limit of descriptors to its maximum, for many connections.
fn have_more_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If that fails, the server allows fewer connections.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Writes a message to standard error. It runs on carriers, so it must not wait until another
/// program reads.
fn warn(line: impl fmt::Display) {
    LineLog::stderr().write_line(format_args!("sinew: {line}"));
}

/// Writes a line to standard output. It runs on carriers, so it must not wait until another program
/// reads.
fn print(line: impl fmt::Display) {
    LineLog::stdout().write_line(line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cli, Command};
    use clap::Parser;

    #[test]
    fn it_serves_though_the_usual_admin_address_is_taken() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let usual = taken.local_addr().unwrap().to_string();
        let runtime = sinew::Runtime::builder().carriers(1).build().unwrap();
        let cli = Cli::parse_from(["sinew", "serve", "--listen", "127.0.0.1:0"]);
        let Some(Command::Serve(options)) = cli.command else { panic!("not `serve`") };
        let server = start(&options, &usual, &runtime).unwrap();
        assert_eq!(server.admin_addr(), None);
        assert_ne!(server.local_addr().port(), 0);
        server.shutdown(Duration::ZERO).unwrap();
    }
}
