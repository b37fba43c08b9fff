//! Streams: both directions of a connection, and their ends.

use crate::backends::{as_fiber_and_thread, on_each, until_it_waits};
use sinew::net::Shutdown;
use sinew::os::unix::net::UnixStream;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};

#[test]
fn a_pair_is_connected_in_both_directions() {
    as_fiber_and_thread(|| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let mut buffer = [0; 4];
        one.write_all(b"ping").unwrap();
        other.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"ping");
        other.write_all(b"pong").unwrap();
        one.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"pong");
        assert_eq!(one.read(&mut []).unwrap(), 0);
        assert_eq!(one.read_vectored(&mut []).unwrap(), 0);
    });
}

#[test]
fn vectors_are_read_and_written_in_order() {
    as_fiber_and_thread(|| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let count = one.write_vectored(&[IoSlice::new(b"hel"), IoSlice::new(b"lo")]).unwrap();
        assert_eq!(count, 5);
        let (mut first, mut second) = ([0; 2], [0; 8]);
        let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(other.read_vectored(&mut buffers).unwrap(), 5);
        assert_eq!((&first, &second[..3]), (b"he", &b"llo"[..]));
    });
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    on_each(|runtime| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let reader = runtime.spawn(move || {
            let mut text = String::new();
            other.read_to_string(&mut text).unwrap();
            other.write_all(b"answer").unwrap();
            text
        });
        until_it_waits(&reader);
        one.write_all(b"question").unwrap();
        one.shutdown(Shutdown::Write).unwrap();
        assert_eq!(one.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        let mut text = String::new();
        one.read_to_string(&mut text).unwrap();
        assert_eq!((reader.join().unwrap().as_str(), text.as_str()), ("question", "answer"));
    });
}

#[test]
fn a_peer_that_is_gone_is_noticed() {
    on_each(|runtime| {
        let (one, other) = UnixStream::pair().unwrap();
        let reader = runtime.spawn(move || {
            let count = (&one).read(&mut [0; 8]).unwrap();
            (count, (&one).write(b"x").unwrap_err().kind())
        });
        until_it_waits(&reader);
        drop(other);
        assert_eq!(reader.join().unwrap(), (0, ErrorKind::BrokenPipe));

        let (one, other) = UnixStream::pair().unwrap();
        let writer = runtime.spawn(move || (&one).write_all(&[7; 1 << 22]).unwrap_err().kind());
        until_it_waits(&writer);
        drop(other);
        assert_eq!(writer.join().unwrap(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_writer_waits_for_room() {
    on_each(|runtime| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let data: Vec<u8> = (0..1 << 20).map(|i| (i % 251) as u8).collect();
        let writer = runtime.spawn({
            let data = data.clone();
            move || one.write_all(&data).unwrap()
        });
        until_it_waits(&writer);
        let mut received = Vec::new();
        other.read_to_end(&mut received).unwrap();
        assert!(received == data);
        writer.join().unwrap();
    });
}
