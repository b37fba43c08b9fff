//! Decides which clients may see the debug routes.

use crate::message::request::Request;
use http::uri::Authority;
use std::net::{IpAddr, SocketAddr};

/// The clients that the routes of [`Router::debug`](crate::Router::debug) answer. Other clients get
/// 403.
///
/// # Examples
/// ```
/// use sinew_http::{Router, debug::Access};
///
/// let router = Router::new().debug(Access::Loopback);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Access {
    /// Programs on this machine: the address of the client is a loopback address.
    ///
    /// A browser on this machine is such a program. The author of a foreign page could give the
    /// page's own name the address of this machine, so that the browser sends requests here (DNS
    /// rebinding). So the request must also name the server as `localhost`, by a loopback address,
    /// or by the address that received the request. Any other name is refused.
    ///
    /// A proxy on this machine asks on behalf of others. So a request with `forwarded`, `via`,
    /// `x-real-ip` or a field such as `x-forwarded-for` is refused. A proxy that adds none of these
    /// fields looks like a local program. [`Server::admin`](crate::Server::admin) serves the routes
    /// at an address to which no proxy forwards requests.
    Loopback,
    /// Every client that can reach the server. Use it for a server that only trusted clients can
    /// reach, or behind a proxy that checks access.
    Anyone,
}

impl Access {
    /// Returns the reason if the request is refused.
    pub(super) fn check(self, request: &Request) -> Result<(), &'static str> {
        match self {
            Access::Anyone => Ok(()),
            Access::Loopback => {
                if !is_loopback(request.peer_addr().ip()) {
                    return Err("only programs on the same machine may see this");
                }
                let forwarded = [
                    "forwarded",
                    "via",
                    "x-forwarded-for",
                    "x-forwarded-host",
                    "x-forwarded-proto",
                    "x-real-ip",
                ];
                if forwarded.iter().any(|name| request.headers().contains_key(*name)) {
                    return Err(
                        "only programs on the same machine may see this, and not through a proxy",
                    );
                }
                let named = request.uri().authority().map(Authority::as_str);
                let hosts = [request.header("host"), named];
                let here = |host: &str| is_here(host, request.local_addr());
                let mut hosts = hosts.into_iter().flatten().peekable();
                match hosts.peek().is_some() && hosts.all(here) {
                    true => Ok(()),
                    false => Err("ask for this at localhost or at a loopback address"),
                }
            }
        }
    }
}

/// Whether an address is a loopback address. An IPv6 socket may show an IPv4 client by a mapped
/// address, which counts as well.
fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Whether a host, with or without a port, names this machine in a way that a foreign page cannot
/// forge.
fn is_here(host: &str, local: SocketAddr) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let host = authority.host();
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let ip = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(ip) => ip.parse().map(IpAddr::V6).ok(),
        None => host.parse().map(IpAddr::V4).ok(),
    };
    let local = local.ip().to_canonical();
    ip.is_some_and(|ip| is_loopback(ip) || ip.to_canonical() == local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_here() {
        let local = "192.0.2.7:80".parse().unwrap();
        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1",
            "127.0.0.1:8080",
            "127.1.2.3",
            "[::1]:8080",
            "192.0.2.7",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is_here(host, local), "{host}");
        }
        for host in [
            "",
            "example.org",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "192.0.2.8",
            "[::2]",
            "::1",
            "0.0.0.0",
            "2130706433",
        ] {
            assert!(!is_here(host, local), "{host}");
        }
    }
}
