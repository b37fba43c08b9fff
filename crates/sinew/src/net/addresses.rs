//! Turns host names into addresses without blocking a carrier.

use std::io;
use std::net::{self, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::{option, slice, vec};

/// Converts a value to socket addresses: `std::net::ToSocketAddrs` for fibers. The same types
/// implement it.
///
/// A host name is looked up on a thread that may [block](crate::blocking()). A
/// [pinned](crate::pinned) fiber looks it up on its carrier, under the runtime's
/// [policy](crate::runtime::Builder::pinned_wait) for waits of pinned fibers. No other conversion
/// waits.
///
/// # Examples
/// ```
/// use sinew::net::ToSocketAddrs;
///
/// let mut addresses = "127.0.0.1:80".to_socket_addrs()?;
/// assert_eq!(addresses.next().unwrap().port(), 80);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait ToSocketAddrs {
    /// An iterator over the addresses.
    type Iter: Iterator<Item = SocketAddr>;

    /// Returns the addresses, after looking up the host name if there is one.
    ///
    /// # Errors
    /// If the value is no valid address, or its host name cannot be resolved.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::ToSocketAddrs;
    ///
    /// sinew::run(|| assert!(("localhost", 80).to_socket_addrs().is_ok()));
    /// ```
    fn to_socket_addrs(&self) -> io::Result<Self::Iter>;
}

macro_rules! known {
    ($($type:ty),*) => {$(
        impl ToSocketAddrs for $type {
            type Iter = option::IntoIter<SocketAddr>;

            fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
                net::ToSocketAddrs::to_socket_addrs(self)
            }
        }
    )*};
}

known!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl ToSocketAddrs for (&str, u16) {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        if let Ok(address) = self.0.parse::<IpAddr>() {
            return Ok(vec![(address, self.1).into()].into_iter());
        }
        let this = *self;
        crate::blocking(|| net::ToSocketAddrs::to_socket_addrs(&this))
    }
}

impl ToSocketAddrs for (String, u16) {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (&*self.0, self.1).to_socket_addrs()
    }
}

impl ToSocketAddrs for str {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        if let Ok(address) = self.parse() {
            return Ok(vec![address].into_iter());
        }
        crate::blocking(|| net::ToSocketAddrs::to_socket_addrs(self))
    }
}

impl ToSocketAddrs for String {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        self.as_str().to_socket_addrs()
    }
}

impl<'a> ToSocketAddrs for &'a [SocketAddr] {
    type Iter = std::iter::Copied<slice::Iter<'a, SocketAddr>>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        Ok(self.iter().copied())
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    type Iter = T::Iter;

    fn to_socket_addrs(&self) -> io::Result<T::Iter> {
        (**self).to_socket_addrs()
    }
}

/// Calls `attempt` with each address until one succeeds. Returns the last error if none does.
pub(super) fn with_each<A, R>(
    addresses: A,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<R>,
) -> io::Result<R>
where
    A: ToSocketAddrs,
{
    let mut last = None;
    for address in addresses.to_socket_addrs()? {
        match attempt(address) {
            Ok(result) => return Ok(result),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses")
    }))
}
