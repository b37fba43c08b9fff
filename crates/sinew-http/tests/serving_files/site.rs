//! A server with a directory of its own, and a client that sends exactly the given requests.

use sinew_http::{Files, Handler, Router, Server, ServerHandle};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// A directory with `root` in it, which is served at `/files/`. Dropping the site ends the server
/// and removes the directory.
pub(crate) struct Site {
    scratch: PathBuf,
    server: ServerHandle,
}

impl Site {
    /// A site that lists no directories.
    pub(crate) fn new() -> Site {
        Site::made(at_files)
    }

    /// A site that lists directories.
    pub(crate) fn listing() -> Site {
        Site::made(|files| at_files(files.listing(true)))
    }

    /// A site with the handler that `make` makes of the files.
    pub(crate) fn made<H: Handler>(make: impl FnOnce(Files) -> H) -> Site {
        Site::at(|root| make(Files::new(root).unwrap()))
    }

    /// A site with the handler that `make` makes of the root's path.
    pub(crate) fn at<H: Handler>(make: impl FnOnce(&Path) -> H) -> Site {
        let scratch = scratch();
        let root = scratch.join("root");
        fs::create_dir(&root).unwrap();
        let server = Server::bind("127.0.0.1:0").start(make(&root)).unwrap();
        Site { scratch, server }
    }

    /// A path beside the root. Nothing there may be served.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    pub(crate) fn inside(&self, name: &str) -> PathBuf {
        self.scratch.join("root").join(name)
    }

    /// Writes a file with an old time of change, so that its tag is strong.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.inside(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        path
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.local_addr()).unwrap()
    }

    /// Sends the first line and fields, and returns the connection.
    pub(crate) fn send(&self, line: &str, fields: &[(&str, &str)]) -> TcpStream {
        let mut stream = self.connect();
        let mut text = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        for (name, value) in fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    /// Sends a request, and reads the answer to its end.
    pub(crate) fn ask(&self, line: &str, fields: &[(&str, &str)]) -> Reply {
        let mut bytes = Vec::new();
        self.send(line, fields).read_to_end(&mut bytes).unwrap();
        let reply = Reply::of(&bytes).unwrap_or_else(|| panic!("{line}: {bytes:?}"));
        let is_bodiless = line.starts_with("HEAD ") || reply.status == 304;
        if !is_bodiless {
            assert_eq!(reply.field("content-length"), Some(&*reply.body.len().to_string()));
        } else {
            assert!(reply.body.is_empty(), "{line}: {reply:?}");
        }
        reply
    }

    /// Requests a path exactly as it is given.
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask(&format!("GET {path}"), &[])
    }

    pub(crate) fn get_with(&self, path: &str, name: &str, value: &str) -> Reply {
        self.ask(&format!("GET {path}"), &[(name, value)])
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.server.shutdown(Duration::from_secs(5));
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// Makes a new directory for one test.
fn scratch() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("sinew-http-files-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    fs::create_dir(&path).unwrap();
    path
}

fn at_files(files: Files) -> Router {
    let files = files.prefix("/files");
    Router::new()
        .get("/files", files.clone())
        .get("/files/", files.clone())
        .get("/files/{*path}", files)
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    fn of(bytes: &[u8]) -> Option<Reply> {
        let at = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..at]).ok()?;
        let (line, fields) = head.split_once("\r\n")?;
        let status = line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let field = |field: &str| {
            let (name, value) = field.split_once(": ")?;
            Some((name.to_ascii_lowercase(), value.to_owned()))
        };
        let fields = fields.split("\r\n").map(field).collect::<Option<_>>()?;
        Some(Reply { status, fields, body: bytes[at + 4..].to_vec() })
    }

    /// The value of a field. Panics if there are several.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(known, _)| known == name);
        let value = found.next().map(|(_, value)| &**value);
        assert!(found.next().is_none(), "{name} is there twice: {self:?}");
        value
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Percent-encodes each byte that is not a letter or a digit.
pub(crate) fn encoded(name: &[u8]) -> String {
    let mut encoded = String::new();
    for &byte in name {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
