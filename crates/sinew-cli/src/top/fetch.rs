//! Sends one request to a server.

use sinew_http::client::ureq::tls::TlsConfig;
use sinew_http::client::ureq::{Agent, Error};
use sinew_http::{client, rustls};
use std::io;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);
/// The largest answer that is read.
const MOST: u64 = 64 << 20;

/// An HTTP client.
#[derive(Clone, Debug)]
pub(super) struct Client(Agent);

impl Client {
    /// Makes a client that accepts any certificate, or only trusted ones.
    pub(super) fn new(accepts_any: bool) -> Client {
        let tls = TlsConfig::builder().disable_verification(accepts_any).build();
        let settings = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .tls_config(tls)
            .build();
        Client(client::agent_with(settings))
    }

    /// Fetches a page.
    ///
    /// # Errors
    /// `NotFound` and `PermissionDenied` for the statuses 404 and 403; the error of the connection
    /// otherwise. All messages name the URL.
    pub(super) fn fetch(&self, url: &str) -> io::Result<String> {
        let mut answer = self.0.get(url).call().map_err(|error| explain(url, error))?;
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(MOST).lossy_utf8(true).read_to_string();
        check(url, status, body.map_err(|error| explain(url, error))?)
    }
}

/// Describes an error of the connection, with advice.
fn explain(url: &str, error: Error) -> io::Error {
    let (kind, advice) = match &error {
        Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            (error.kind(), "; start a server there with `sinew serve`")
        }
        Error::Io(error) if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => {
            let is_certificate = error.to_string().contains("certificate");
            let advice = match is_certificate {
                true => "; --insecure accepts any certificate",
                false => "; does it speak http:// instead?",
            };
            (io::ErrorKind::InvalidData, advice)
        }
        // `main` takes a broken pipe for the end of its own output, and would exit silently.
        Error::Io(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            (io::ErrorKind::ConnectionAborted, "")
        }
        Error::Io(error) => (error.kind(), ""),
        Error::Timeout(_) => (io::ErrorKind::TimedOut, ""),
        Error::HostNotFound => (io::ErrorKind::NotFound, ""),
        _ => (
            io::ErrorKind::InvalidData,
            "; is it a web server, and does it speak https:// instead?",
        ),
    };
    io::Error::new(kind, format!("cannot connect to {url}: {error}{advice}"))
}

/// Returns the body if the status is 200.
fn check(url: &str, status: u16, body: String) -> io::Result<String> {
    // The answer may come from any server. Its control characters must not reach the terminal.
    let first = body.lines().next().unwrap_or_default();
    let reason: String =
        first.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let (kind, message) = match status {
        200 => return Ok(body),
        403 => (io::ErrorKind::PermissionDenied, format!("{url} refuses access (403): {reason}")),
        404 => (
            io::ErrorKind::NotFound,
            format!(
                "{url} does not exist (404): no sinew server, or no debug routes at this port; \
                 `sinew serve` has them at its admin listener, by default at 127.0.0.1:8081"
            ),
        ),
        _ => (io::ErrorKind::Other, format!("{url} answers {status}: {reason}")),
    };
    Err(io::Error::new(kind, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_told_apart() {
        let of = |status| check("http://a/b", status, "yes".into()).map_err(|error| error.kind());
        assert_eq!(of(200).as_deref(), Ok("yes"));
        assert_eq!(of(403), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(of(404), Err(io::ErrorKind::NotFound));
        assert_eq!(of(500), Err(io::ErrorKind::Other));
    }

    #[test]
    fn an_answer_does_not_control_the_terminal() {
        for status in [403, 500] {
            let said =
                check("http://a/b", status, "\u{1b}]0;title\u{7}no\nmore".into()).unwrap_err();
            assert!(said.to_string().ends_with(": \u{fffd}]0;title\u{fffd}no"), "{said}");
        }
    }

    #[test]
    fn a_connection_that_breaks_is_no_success() {
        let broken = Error::Io(io::ErrorKind::BrokenPipe.into());
        assert_ne!(explain("http://a/b", broken).kind(), io::ErrorKind::BrokenPipe);
    }
}
