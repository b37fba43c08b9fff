//! Addresses of names for `ureq`.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// How many addresses `ureq` has room for.
const MOST: usize = 16;

/// Finds addresses on a thread that may block, while the fiber waits.
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
        let look_up = move || {
            let found = sinew::blocking(move || name.to_socket_addrs().map(Iterator::collect));
            let found: io::Result<Vec<SocketAddr>> = found;
            found
        };
        let found = match timeout.not_zero() {
            Some(limit) => {
                sinew::timeout(*limit, look_up).map_err(|_| Error::Timeout(timeout.reason))?
            }
            None => look_up(),
        };
        let family = config.ip_family();
        let wanted = family.keep_wanted(found?.into_iter());
        let mut addresses = self.empty();
        for address in wanted.take(MOST) {
            addresses.push(address);
        }
        if addresses.is_empty() { Err(Error::HostNotFound) } else { Ok(addresses) }
    }
}
