//! What only some systems have, where `std::os` has it.

/// What Unix systems have.
pub mod unix {
    /// Unix sockets with the methods of `std::os::unix::net`, for fibers.
    ///
    /// Changing `use std::os::unix::net` to `use sinew::os::unix::net` ports a program, as
    /// [`net`](crate::net) does for sockets of the internet; what is said there of differences is true
    /// here.
    pub mod net {
        pub use crate::net::unix::{Incoming, UnixDatagram, UnixListener, UnixStream};
        pub use std::os::unix::net::SocketAddr;
    }
}
