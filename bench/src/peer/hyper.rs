//! hyper on tokio.

use super::tokio_io::serve_by;
use crate::http::certificate;
use crate::http::{Answer, GREETING, JSON, TEXT, json};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

pub(crate) const SETTINGS: &str = "1.12.0 http1, pipeline_flush(true), \
     tokio 1.54.1 multi_thread, 2 workers, a task per connection";
pub(crate) const TLS: &str = concat!(
    "1.12.0 http1, pipeline_flush(true), tokio 1.54.1 multi_thread, 2 workers, a task per \
     connection, tokio-rustls 0.26.6, ",
    certificate::settings!()
);

pub(crate) fn serve(answer: Answer) -> u16 {
    serve_by(move |stream| converse(stream, answer))
}

pub(crate) fn serve_tls() -> u16 {
    let acceptor = TlsAcceptor::from(certificate::config());
    serve_by(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            // A client that closes during the handshake reports it in its own errors.
            if let Ok(stream) = acceptor.accept(stream).await {
                converse(stream, Answer::Hello).await;
            }
        }
    })
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, answer: Answer) {
    let service = service_fn(move |request| respond(request, answer));
    // The future ends with an error if the client closes during a request, as wrk does.
    let _ = http1::Builder::new()
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(
    _request: Request<Incoming>,
    answer: Answer,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (kind, body) = match answer {
        Answer::Hello => (TEXT, Bytes::from_static(GREETING.as_bytes())),
        Answer::Json => (JSON, Bytes::from(json())),
    };
    let mut response = Response::new(Full::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}
