//! The certificate that all TLS servers share, and the configuration of rustls.
//!
//! The first server that needs the certificate makes it, beside cargo's output. Servers are
//! processes of their own, and all of them find it there. It is self-signed, and no client checks
//! it.

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use std::fs::{create_dir_all, read, write};
use std::sync::Arc;

/// The description in the settings of each contender.
macro_rules! settings {
    () => {
        "rustls 0.23.46 with ring, TLS 1.3, ECDSA P-256"
    };
}
pub(crate) use settings;

/// A certificate and its key, as PEM.
pub(crate) struct Certificate {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

/// Returns the certificate that all servers share, and makes it if there is none.
pub(crate) fn get() -> Result<Certificate, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let directory = own.ancestors().nth(2).ok_or("this program lies in no directory")?.join("tls");
    let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
    if let (Ok(certificate), Ok(key)) = (read(&certificate), read(&key)) {
        return Ok(Certificate { certificate, key });
    }
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])
        .map_err(|error| format!("cannot make a certificate: {error}"))?;
    let made = Certificate {
        certificate: made.cert.pem().into_bytes(),
        key: made.signing_key.serialize_pem().into_bytes(),
    };
    create_dir_all(&directory)
        .and_then(|()| write(&certificate, &made.certificate))
        .and_then(|()| write(&key, &made.key))
        .map_err(|error| format!("cannot write {}: {error}", directory.display()))?;
    Ok(made)
}

/// Returns the configuration of a TLS server.
pub(crate) fn config() -> Arc<ServerConfig> {
    let pem = get().expect("there is a certificate");
    let chain = CertificateDer::pem_slice_iter(&pem.certificate).collect::<Result<Vec<_>, _>>();
    let key = PrivateKeyDer::from_pem_slice(&pem.key);
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .expect("ring has suites for TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(chain.expect("it is PEM"), key.expect("it is PEM"))
        .expect("the key belongs to the certificate");
    Arc::new(config)
}
