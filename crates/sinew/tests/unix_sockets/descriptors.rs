//! Descriptors that a stream passes on between plain bytes.

use crate::backends::{on_each, until_it_waits};
use sinew::os::unix::net::UnixStream;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::thread;

/// Room for one descriptor next to the data.
#[repr(align(8))]
struct Control {
    _bytes: [u8; 64],
}

/// Sends a byte together with a descriptor.
fn pass(socket: BorrowedFd<'_>, byte: u8, fd: BorrowedFd<'_>) {
    let mut control = Control { _bytes: [0; 64] };
    let mut data = libc::iovec { iov_base: (&raw const byte).cast_mut().cast(), iov_len: 1 };
    // SAFETY: an all-zero header is valid. Its parts outlive the call, and the control message
    // fits.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut data;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as _;
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
        libc::CMSG_DATA(message).cast::<i32>().write_unaligned(fd.as_raw_fd());
        assert_eq!(libc::sendmsg(socket.as_raw_fd(), &raw const header, 0), 1);
    }
}

/// Receives a byte, and the descriptor that was sent together with it.
fn receive(socket: BorrowedFd<'_>) -> std::io::Result<(u8, OwnedFd)> {
    let (mut byte, mut control) = (0_u8, Control { _bytes: [0; 64] });
    let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: an all-zero header is valid, and its parts outlive the call. The descriptor is new.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut data;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of::<Control>() as _;
        if libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) < 0 {
            return Err(std::io::Error::last_os_error());
        }
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        assert!(!message.is_null() && (*message).cmsg_type == libc::SCM_RIGHTS);
        let fd = libc::CMSG_DATA(message).cast::<i32>().read_unaligned();
        Ok((byte, OwnedFd::from_raw_fd(fd)))
    }
}

/// A read stops where a descriptor was passed, although more bytes are there. So a short read does
/// not mean that nothing is left, and the kernel does not report the rest a second time.
#[test]
fn reads_go_on_behind_a_descriptor_that_was_passed() {
    fn send(mut one: &UnixStream) {
        let (reader, _writer) = std::io::pipe().unwrap();
        one.write_all(b"abc").unwrap();
        pass(one.as_fd(), b'd', reader.as_fd());
        one.write_all(b"efg").unwrap();
        pass(one.as_fd(), b'h', reader.as_fd());
        one.write_all(b"i").unwrap();
    }
    fn read(mut other: &UnixStream) -> Vec<u8> {
        let mut received = Vec::new();
        while received.len() < 9 {
            let mut buffer = [0; 64];
            let count = other.read(&mut buffer).unwrap();
            received.extend_from_slice(&buffer[..count]);
        }
        received
    }
    on_each(|runtime| {
        let (one, other) = UnixStream::pair().unwrap();
        let other = Arc::new(other);
        let read = |other: Arc<UnixStream>| move || read(&other);
        // The first time the reader waits; the second time all bytes are there when it begins.
        let reader = runtime.spawn(read(other.clone()));
        until_it_waits(&reader);
        send(&one);
        assert_eq!(reader.join().unwrap(), b"abcdefghi");
        send(&one);
        assert_eq!(runtime.run(read(other.clone())), b"abcdefghi");
        send(&one);
        assert_eq!(thread::spawn(read(other)).join().unwrap(), b"abcdefghi");
    });
}

#[test]
fn a_descriptor_arrives_between_plain_bytes() {
    fn check(mut other: &UnixStream) {
        let mut buffer = [0; 3];
        other.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"abc");
        let (byte, fd) = loop {
            sinew::io::wait_readable(other).unwrap();
            match receive(other.as_fd()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                received => break received.unwrap(),
            }
        };
        assert_eq!(byte, b'd');
        std::io::PipeWriter::from(fd).write_all(b"through the descriptor").unwrap();
        other.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"efg");
    }
    on_each(|runtime| {
        let (one, other) = UnixStream::pair().unwrap();
        let fiber = runtime.spawn(move || check(&other));
        until_it_waits(&fiber);
        let (mut reader, writer) = std::io::pipe().unwrap();
        (&one).write_all(b"abc").unwrap();
        pass(one.as_fd(), b'd', writer.as_fd());
        (&one).write_all(b"efg").unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through the descriptor");
        fiber.join().unwrap();
    });
}
