//! Requests to other servers: `ureq` over the sockets of fibers.
//!
//! A client has to know more than a server: redirects, cookies, proxies, certificates, compressed
//! bodies, pools of connections. `ureq` knows all that, is written for code that blocks, and lets one
//! choose what it connects with and who finds addresses. So this is the whole of it: a connector that
//! gives it [`sinew::net::TcpStream`]s, and a resolver that asks for addresses on a thread that may block.
//! Every wait suspends the fiber; on a plain thread it blocks that thread.
//!
//! What `ureq` calls `unversioned` may change in its minor versions; this crate is bound to those that
//! it was tested with.

mod connector;
mod resolver;

pub use connector::FiberConnector;
pub use resolver::FiberResolver;
pub use ureq;

use ureq::Agent;
use ureq::config::Config;
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, RustlsConnector};

/// A client with the ordinary settings. It may be cloned and shared; clones share connections.
///
/// # Examples
/// ```
/// use sinew_http::{Request, Response, Server, client};
///
/// sinew::run(|| {
///     let server = Server::bind("127.0.0.1:0").start(|_: Request| Response::text("hello"))?;
///     let url = format!("http://{}/", server.local_addr());
///     let text = client::agent().get(&url).call()?.body_mut().read_to_string()?;
///     assert_eq!(text, "hello");
///     # let _ = server.shutdown(std::time::Duration::ZERO);
///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// }).unwrap();
/// ```
pub fn agent() -> Agent {
    agent_with(Config::default())
}

/// A client with these settings: timeouts, redirects, certificates, proxies, pools.
///
/// # Examples
/// ```
/// use sinew_http::client::{self, ureq::Agent};
/// use std::time::Duration;
///
/// let settings = Agent::config_builder().timeout_global(Some(Duration::from_secs(5))).build();
/// let agent = client::agent_with(settings);
/// ```
///
/// A client of a server whose certificate was made for development:
/// ```
/// # #[cfg(feature = "tls")] {
/// use sinew_http::client::ureq::tls::{Certificate, RootCerts, TlsConfig};
/// use sinew_http::client::{self, ureq::Agent};
/// use sinew_http::{Request, Server, Tls};
///
/// let tls = Tls::self_signed(["localhost"])?;
/// let certificate = Certificate::from_der(tls.certificate().expect("it was made here")).to_owned();
/// let server = Server::bind("127.0.0.1:0").tls(tls).start(|_: Request| "hello")?;
///
/// let trusted = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[certificate])).build();
/// let agent = client::agent_with(Agent::config_builder().tls_config(trusted).build());
/// let url = format!("https://localhost:{}/", server.local_addr().port());
/// assert_eq!(agent.get(&url).call()?.body_mut().read_to_string()?, "hello");
/// # let _ = server.shutdown(std::time::Duration::ZERO);
/// # }
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub fn agent_with(config: Config) -> Agent {
    let connector =
        ().chain(ConnectProxyConnector::default())
            .chain(FiberConnector::default())
            .chain(RustlsConnector::default());
    Agent::with_parts(config, connector, FiberResolver::default())
}
