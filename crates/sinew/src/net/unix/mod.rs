//! Unix sockets. [`os::unix::net`](crate::os::unix::net) exports them.

mod addresses;
mod datagram;
mod listener;
mod stream;

pub use datagram::UnixDatagram;
pub use listener::{Incoming, UnixListener};
pub use stream::UnixStream;
