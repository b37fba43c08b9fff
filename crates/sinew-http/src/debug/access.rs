//! Who may see what the program does.

use crate::message::request::Request;
use http::uri::Authority;
use std::net::{IpAddr, SocketAddr};

/// Who is answered by the routes that [`Router::debug`](crate::Router::debug) adds. Others get 403.
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
    /// Programs on the same machine: the address of who asks is a loopback address.
    ///
    /// A browser on this machine is such a program, and a page from elsewhere could have it ask, if its
    /// own name were made to mean this machine (DNS rebinding). So the request has to name the server as
    /// `localhost`, by a loopback address, or by the address that it was received at, too; a name that
    /// somebody else can give to this machine is refused.
    ///
    /// A proxy on this machine asks on behalf of others. A request with `forwarded`, `via`, `x-real-ip` or a
    /// field such as `x-forwarded-for` is refused therefore. A proxy that adds none of them cannot be told from
    /// a program that asks for itself: [`Server::admin`](crate::Server::admin) serves the routes at an address
    /// that no proxy passes requests on to.
    Loopback,
    /// Everybody who can reach the server: for one that listens where only those can reach it who may
    /// know everything, or that is behind something that checks.
    Anyone,
}

impl Access {
    /// Says why a request is refused, if it is.
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
                        "only programs on the same machine may see this, not those behind a proxy",
                    );
                }
                let named = request.uri().authority().map(Authority::as_str);
                let hosts = [request.header("host"), named];
                let here = |host: &str| is_here(host, request.local_addr());
                let mut hosts = hosts.into_iter().flatten().peekable();
                match hosts.peek().is_some() && hosts.all(here) {
                    true => Ok(()),
                    false => Err("this is to be asked for at localhost or a loopback address"),
                }
            }
        }
    }
}

/// Also if an IPv6 socket received it from an IPv4 address.
fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Whether a host, with or without a port, is this machine and cannot be made to mean it by others.
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
    fn hosts_that_anybody_can_name_are_not_here() {
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
