//! Many sockets between fibers, on every backend of this system.

use crate::backends::on_each;
use sinew::net::{TcpListener, TcpStream};
use std::io::{Read, Write};

mod backends;

#[test]
fn every_client_gets_its_own_bytes_back() {
    on_each(|runtime| runtime.run(echo));
}

fn echo() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = sinew::spawn(move || {
        for _ in 0..10 {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            sinew::spawn(move || {
                let mut buffer = [0; 64];
                loop {
                    let count = stream.read(&mut buffer).unwrap();
                    if count == 0 {
                        break;
                    }
                    stream.write_all(&buffer[..count]).unwrap();
                }
            });
        }
    });
    let clients: Vec<_> = (0..10)
        .map(|client: u64| {
            sinew::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_nodelay(true).unwrap();
                let mut buffer = [0; 8];
                for round in 0..1000 {
                    let message = (client << 16 | round).to_ne_bytes();
                    stream.write_all(&message).unwrap();
                    stream.read_exact(&mut buffer).unwrap();
                    assert_eq!(buffer, message);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.join().unwrap();
}
