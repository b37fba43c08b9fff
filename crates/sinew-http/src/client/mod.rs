//! Requests to other servers: `ureq` over the sockets of fibers.
//!
//! A client has to know more than a server: redirects, cookies, proxies, certificates, compressed
//! bodies, connection pools. `ureq` knows all that, is written for blocking code, and lets its user
//! replace the connector and the resolver. So this module only adds a connector, which gives `ureq`
//! [`sinew::net::TcpStream`]s, and a resolver, which looks up names on a thread that may block.
//! Every wait suspends the fiber; on a plain thread it blocks the thread.
//!
//! The modules that `ureq` calls `unversioned` may change in its minor versions. This crate depends
//! on the versions that it was tested with.

mod connector;
mod resolver;

pub use connector::FiberConnector;
pub use resolver::FiberResolver;
pub use ureq;

use ureq::Agent;
use ureq::config::Config;
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, RustlsConnector};

/// Makes a client with the default settings. Clones share their connections.
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

/// Makes a client with these settings: timeouts, redirects, certificates, proxies, pools.
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
/// A client that trusts a certificate made for development:
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
