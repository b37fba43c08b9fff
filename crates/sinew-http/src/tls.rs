//! The TLS configuration of a server: certificates from PEM, or made for development.
//!
//! Next: `wire::tls`, which encrypts a connection with this configuration.

use core::fmt;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The TLS configuration of a server: a certificate and its key, or a configuration of `rustls`.
///
/// # Examples
/// ```
/// use sinew_http::{Request, Response, Server, Tls};
///
/// let tls = Tls::self_signed(["localhost"])?;
/// let server = Server::bind("127.0.0.1:0").tls(tls).start(|_: Request| Response::text("secret"))?;
/// # server.shutdown(std::time::Duration::ZERO);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    /// The first certificate of the chain; `None` if the user has made the configuration.
    certificate: Option<CertificateDer<'static>>,
}

impl Tls {
    /// Makes a configuration from a certificate chain and a key, both in PEM. The server's
    /// certificate comes first.
    ///
    /// # Errors
    /// If the chain has no certificate, if there is no key, or if the key does not belong to the
    /// certificate.
    ///
    /// # Examples
    /// ```
    /// let error = sinew_http::Tls::from_pem("nothing", "nothing").unwrap_err();
    /// assert_eq!(error.to_string(), "the PEM text of the certificate chain has no certificate");
    /// ```
    pub fn from_pem(certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> io::Result<Tls> {
        let chain = CertificateDer::pem_slice_iter(certificate.as_ref())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| invalid(format!("the certificate is not PEM: {error}")))?;
        if chain.is_empty() {
            return Err(invalid("the PEM text of the certificate chain has no certificate".into()));
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_ref()).map_err(|error| {
            invalid(format!("the PEM text of the key has no private key: {error}"))
        })?;
        Tls::new(chain, key)
    }

    /// Makes a configuration from PEM files with a certificate chain and a key.
    ///
    /// # Errors
    /// If a file cannot be read, or for the reasons of [`from_pem`](Self::from_pem). The message
    /// names the file.
    ///
    /// # Examples
    /// ```
    /// let error = sinew_http::Tls::from_pem_files("none.pem", "none.key").unwrap_err();
    /// assert!(error.to_string().starts_with("none.pem: "));
    /// ```
    pub fn from_pem_files(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> io::Result<Tls> {
        let (certificate, key) = (certificate.as_ref(), key.as_ref());
        let read = |path: &Path| sinew::fs::read(path).map_err(|error| about(path, &error));
        let (certificate_pem, key_pem) = (read(certificate)?, read(key)?);
        Tls::from_pem(certificate_pem, key_pem).map_err(|error| {
            let message = format!("{} and {}: {error}", certificate.display(), key.display());
            io::Error::new(error.kind(), message)
        })
    }

    /// Makes a self-signed certificate for these names, for development. Clients have to trust it
    /// explicitly: give them the [`certificate`](Self::certificate). `client::agent_with` has an
    /// example.
    ///
    /// # Errors
    /// If one of the names is invalid.
    ///
    /// # Examples
    /// ```
    /// let tls = sinew_http::Tls::self_signed(["localhost", "127.0.0.1"])?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn self_signed(names: impl IntoIterator<Item = impl Into<String>>) -> io::Result<Tls> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let made = rcgen::generate_simple_self_signed(names.clone()).map_err(|error| {
            invalid(format!("cannot make a certificate for {names:?}: {error}"))
        })?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Tls::new(vec![made.cert.der().clone()], key.into())
    }

    /// Uses a configuration of `rustls`, for client certificates, several names, or other
    /// providers.
    ///
    /// The configuration should negotiate the protocol `http/1.1`, or none.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::rustls::ServerConfig;
    ///
    /// fn tls(config: ServerConfig) -> sinew_http::Tls {
    ///     sinew_http::Tls::from_config(config.into())
    /// }
    /// ```
    pub fn from_config(config: Arc<ServerConfig>) -> Tls {
        Tls { config, certificate: None }
    }

    /// Returns the first certificate of the chain, which clients of a
    /// [self-signed](Self::self_signed) server have to trust. `None` if the configuration was made
    /// by [`from_config`](Self::from_config).
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Tls, rustls::RootCertStore};
    ///
    /// let tls = Tls::self_signed(["localhost"])?;
    /// let mut trusted = RootCertStore::empty();
    /// trusted.add(tls.certificate().expect("it was made here").clone()).expect("it is valid");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.certificate.as_ref()
    }

    fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> io::Result<Tls> {
        let certificate = chain.first().cloned();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| {
                invalid(format!("the certificate and the key cannot be used: {error}"))
            })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls { config: Arc::new(config), certificate })
    }

    pub(crate) fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
