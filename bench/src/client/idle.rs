//! Opens connections and sends nothing on them.

use super::wait_for_start;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd};

/// The number of connections from one address: less than the ports that the kernel hands out by
/// default.
const FROM_ONE_ADDRESS: usize = 6_000;

pub(super) fn run(port: u16, connections: usize) -> io::Result<()> {
    crate::server::allow_files();
    let all: io::Result<Vec<TcpStream>> = (0..connections)
        .map(|number| {
            let stream = connect_from(2 + (number / FROM_ONE_ADDRESS) as u8, port)?;
            reset_on_close(&stream);
            Ok(stream)
        })
        .collect();
    let all = all?;
    wait_for_start()?;
    drop(all);
    Ok(())
}

/// Connects from the loopback address 127.0.0.`host`.
fn connect_from(host: u8, port: u16) -> io::Result<TcpStream> {
    let address = |host: u8, port: u16| libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, host]) },
        sin_zero: [0; 8],
    };
    let (from, to) = (address(host, 0), address(1, port));
    let len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    let check = |result: i32| match result {
        -1 => Err(io::Error::last_os_error()),
        other => Ok(other),
    };
    // SAFETY: no preconditions; the call returns a new descriptor or an error.
    let socket = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) })?;
    // SAFETY: the descriptor is new, and nothing else owns it.
    let stream = unsafe { TcpStream::from_raw_fd(socket) };
    let on = 1_i32;
    // SAFETY: the socket is open, the option is an integer, and the calls get the true lengths of
    // the addresses.
    unsafe {
        // The kernel chooses the port in `connect`, when it knows the destination, so that one port
        // can serve several connections.
        check(libc::setsockopt(
            socket,
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        ))?;
        check(libc::bind(socket, (&raw const from).cast(), len))?;
        check(libc::connect(socket, (&raw const to).cast(), len))?;
    }
    Ok(stream)
}

/// Makes `close` reset the connection, which frees its port at once instead of after a minute.
pub(super) fn reset_on_close(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the socket is open, and the option has the type and the length that the kernel
    // expects.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as libc::socklen_t,
        );
    }
}
