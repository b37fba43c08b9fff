//! Addresses of Unix sockets, between the standard library's and the system's.

use socket2::SockAddr;
#[cfg(target_os = "android")]
use std::os::android::net::SocketAddrExt;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::{io, path::Path};

/// The address of a path.
pub(super) fn of_path(path: &Path) -> io::Result<SockAddr> {
    // The standard library refuses more than socket2 does: zero bytes in the middle.
    SocketAddr::from_pathname(path)?;
    SockAddr::unix(path)
}

/// An address of the standard library, for the system.
pub(super) fn to_system(address: &SocketAddr) -> io::Result<SockAddr> {
    if let Some(path) = address.as_pathname() {
        return SockAddr::unix(path);
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Some(name) = address.as_abstract_name() {
        use std::os::unix::ffi::OsStrExt;

        let name = [b"\0", name].concat();
        return SockAddr::unix(Path::new(std::ffi::OsStr::from_bytes(&name)));
    }
    SockAddr::unix(Path::new(""))
}

/// An address of the system, for the standard library.
pub(super) fn from_system(address: &SockAddr) -> io::Result<SocketAddr> {
    if let Some(path) = address.as_pathname() {
        return SocketAddr::from_pathname(path);
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Some(name) = address.as_abstract_namespace() {
        return SocketAddr::from_abstract_name(name);
    }
    unnamed()
}

/// The address of a socket that has none.
pub(super) fn unnamed() -> io::Result<SocketAddr> {
    SocketAddr::from_pathname("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(address: &SocketAddr) -> SocketAddr {
        from_system(&to_system(address).unwrap()).unwrap()
    }

    #[test]
    fn paths_stay_what_they_are() {
        let address = SocketAddr::from_pathname("/some/path").unwrap();
        assert_eq!(round_trip(&address).as_pathname(), Some(Path::new("/some/path")));
    }

    #[test]
    fn no_name_stays_none() {
        assert!(unnamed().unwrap().is_unnamed());
        assert!(round_trip(&unnamed().unwrap()).is_unnamed());
    }

    #[test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn abstract_names_stay_what_they_are() {
        for name in [&b"some name"[..], b"with\0zero", b"\0"] {
            let address = SocketAddr::from_abstract_name(name).unwrap();
            assert_eq!(round_trip(&address).as_abstract_name(), Some(name));
        }
    }

    #[test]
    fn a_path_with_a_zero_byte_is_refused() {
        let error = of_path(Path::new("a\0b")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
