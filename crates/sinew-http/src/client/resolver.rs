//! Looks up names for `ureq`.

use core::time::Duration;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::resume_unwind;
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// How many addresses `ureq` has room for.
const MOST: usize = 16;

/// Looks up names on a thread that may block, while the fiber waits.
///
/// # Examples
/// ```
/// use sinew_http::client::FiberResolver;
/// use sinew_http::client::ureq::unversioned::transport::DefaultConnector;
/// use sinew_http::client::ureq::{Agent, config::Config};
/// use sinew_http::{Request, Server};
///
/// // Only the lookup suspends the fiber; the connector of `ureq` blocks the thread.
/// let (connector, resolver) = (DefaultConnector::default(), FiberResolver::default());
/// let agent = Agent::with_parts(Config::default(), connector, resolver);
/// let server = Server::bind("127.0.0.1:0").start(|_: Request| "hello")?;
/// let url = format!("http://localhost:{}/", server.local_addr().port());
/// assert_eq!(agent.get(&url).call()?.body_mut().read_to_string()?, "hello");
/// # let _ = server.shutdown(std::time::Duration::ZERO);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Default, Debug)]
pub struct FiberResolver(());

impl Resolver for FiberResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let name = match (uri.scheme(), uri.authority()) {
            (Some(scheme), Some(authority)) => DefaultResolver::host_and_port(scheme, authority),
            _ => None,
        };
        let name = name.ok_or_else(|| Error::BadUri(uri.to_string()))?;
        let limit = timeout.not_zero().map(|limit| *limit);
        let found = look_up(name, limit)?.ok_or(Error::Timeout(timeout.reason))?;
        let family = config.ip_family();
        let wanted = family.keep_wanted(found.into_iter());
        let mut addresses = self.empty();
        for address in wanted.take(MOST) {
            addresses.push(address);
        }
        if addresses.is_empty() { Err(Error::HostNotFound) } else { Ok(addresses) }
    }
}

/// Looks up a name with a port. Returns `None` if the lookup takes longer than `limit`.
fn look_up(name: String, limit: Option<Duration>) -> io::Result<Option<Vec<SocketAddr>>> {
    // An address needs no lookup.
    if let Ok(address) = name.parse() {
        return Ok(Some(vec![address]));
    }
    within(limit, move || name.to_socket_addrs().map(Iterator::collect)).transpose()
}

/// Runs `f` on a thread that may block. Returns `None` if `f` takes longer than `limit`. A late
/// call cannot be stopped, so another fiber waits for its end.
fn within<T: Send + 'static>(
    limit: Option<Duration>,
    f: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let Some(limit) = limit else { return Some(sinew::blocking(f)) };
    match sinew::spawn(move || sinew::blocking(f)).join_timeout(limit) {
        Ok(Ok(result)) => Some(result),
        Ok(Err(payload)) => resume_unwind(payload),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sinew_testkit::watch;
    use std::sync::mpsc::channel;

    /// Checked on a fiber, and on a plain thread.
    #[test]
    fn a_lookup_that_takes_too_long_is_not_waited_for() {
        let _watch = watch::a_minute();
        let check = || {
            let (end, ended) = channel::<()>();
            let late = within(Some(Duration::from_millis(20)), move || ended.recv());
            assert!(late.is_none());
            drop(end);
            assert_eq!(within(Some(Duration::from_secs(60)), || 7), Some(7));
            assert_eq!(within(None, || 8), Some(8));
        };
        check();
        sinew::run(check);
    }
}
