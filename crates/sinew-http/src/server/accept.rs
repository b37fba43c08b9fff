//! Connections come in.

use super::shared::Shared;
use crate::connection;
use crate::log::Problem;
use core::sync::atomic::Ordering;
use sinew::net::TcpListener;
use sinew::sync::Semaphore;
#[cfg(any(target_os = "linux", target_os = "android"))]
use socket2::SockRef;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Listens with `count` sockets at the first of several addresses that can be listened at.
pub(super) fn listen(addresses: &[SocketAddr], count: usize) -> io::Result<Vec<TcpListener>> {
    let mut problem =
        io::Error::new(io::ErrorKind::InvalidInput, "there is no address to listen at");
    for &address in addresses {
        match listen_at(address, count) {
            Ok(listeners) => return Ok(listeners),
            Err(error) => {
                let message = format!("cannot listen at {address}: {error}");
                problem = io::Error::new(error.kind(), message);
            }
        }
    }
    Err(problem)
}

fn listen_at(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let first = open(address, count > 1)?;
    // If any port will do, the others take the same.
    let address = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..count {
        listeners.push(open(address, true)?);
    }
    Ok(listeners)
}

fn open(address: SocketAddr, shares: bool) -> io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if shares {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&SockAddr::from(address))?;
    // As many may wait to be accepted as the system allows.
    socket.listen(i32::MAX)?;
    Ok(TcpListener::from(std::net::TcpListener::from(socket)))
}

/// Accepts connections until it is cancelled. One that there is no room for waits here until there is, and others behind
/// it, in the kernel: who waits for a connection to come keeps no room from the other listeners.
pub(super) fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    have_progress_reported(listener);
    loop {
        let begun = listener.accept().and_then(|accepted| {
            let permit = Semaphore::acquire_owned(&shared.room, 1);
            let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
            connection::accepted(shared, accepted, number, permit)
        });
        if let Err(error) = begun {
            shared.tell(&Problem::Accept(&error));
        }
    }
}

/// How much of what is written may wait to be sent, in bytes.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT: u32 = 128 * 1024;

/// Has those who write woken when the client has taken some tens of kilobytes. The kernel would do so when a third of
/// what it keeps for a connection is free, which may be more than a client that reads all the time takes before a
/// write is given up. Connections have it from their listener.
fn have_progress_reported(listener: &TcpListener) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    // What listens may be something else than TCP, if somebody brought it along.
    let _ = SockRef::from(listener).set_tcp_notsent_lowat(UNSENT);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = listener;
}
