//! Conversion of Unix socket addresses between the standard library and `socket2`.

use socket2::SockAddr;
#[cfg(target_os = "android")]
use std::os::android::net::SocketAddrExt;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::{io, path::Path};

/// Makes an address of a path.
pub(super) fn of_path(path: &Path) -> io::Result<SockAddr> {
    // The standard library also refuses zero bytes inside of the path, which `socket2` accepts.
    SocketAddr::from_pathname(path)?;
    SockAddr::unix(path)
}

/// Converts an address of the standard library to one of `socket2`.
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

/// Converts an address of `socket2` to one of the standard library.
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

/// Makes the address of a socket that has no name.
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
    fn a_path_survives_the_round_trip() {
        let address = SocketAddr::from_pathname("/some/path").unwrap();
        assert_eq!(round_trip(&address).as_pathname(), Some(Path::new("/some/path")));
    }

    #[test]
    fn an_unnamed_address_survives_the_round_trip() {
        assert!(unnamed().unwrap().is_unnamed());
        assert!(round_trip(&unnamed().unwrap()).is_unnamed());
    }

    #[test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn an_abstract_name_survives_the_round_trip() {
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
