//! TLS for links: TLS 1.3 with certificates on both sides.
//!
//! Each side presents a certificate from an authority that the other configured, with a name that
//! the other expects. There are neither older versions of TLS, nor session resumption, nor
//! revocation lists; an expired certificate fails the handshake of a new connection, and does not
//! end a live connection. At each new connection, at SIGHUP of the daemon and every `RENEW_NS` (1
//! h), files are read again if one of them changed, for new connections only; faulty files leave
//! the old configuration in use and are read again the next time, or keep the link from opening at
//! first. A longer file than [`CERTIFICATE_BYTES_MAX`] (1 MiB) is faulty.
//!
//! Private keys are kept by TLS only, and never logged. The module reads files (it may block on the
//! file system) and configures TLS; `super::open`, `super::view` and [`super::stream`] call it in
//! the shard of links, and [`super::stream`] moves the bytes.

use std::path::Path;
use std::sync::Arc;

use causeway_model::TlsSpec;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, StoresServerSessions, WebPkiClientVerifier};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct,
    DistinguishedName, Error, RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};
use zeroize::Zeroizing;

use super::limits::{CERTIFICATE_BYTES_MAX, EXPIRY_DAYS, EXPIRY_LOG_NS, SEALED_BYTES_MAX};
use super::service::wall_ns;

/// TLS configuration of one side of a link.
#[derive(Clone)]
pub enum Security {
    /// The side that connects, with the expected name of the peer.
    Connects(Arc<ClientConfig>, ServerName<'static>),
    /// The side that listens.
    Listens(Arc<ServerConfig>),
}

impl std::fmt::Debug for Security {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connects(_, peer) => f.debug_tuple("Connects").field(peer).finish(),
            Self::Listens(_) => f.write_str("Listens"),
        }
    }
}

/// Fingerprint of a file, to detect replacement: inode, length, and time of modification.
type FileFingerprint = Option<(u64, u64, i64, i64)>;

/// TLS configuration of a link, read again when one of its files changes.
#[derive(Debug)]
pub struct ReloadableTls {
    spec: TlsSpec,
    /// Of certificate, private key and authorities, when they were read.
    fingerprints: [FileFingerprint; 3],
    /// The configuration for new connections.
    security: Security,
    /// When our certificate expires, in seconds since 1970.
    pub expires: Option<i64>,
}

impl ReloadableTls {
    /// Reads the files of a link.
    ///
    /// # Errors
    /// As for [`Security::read`].
    pub fn read(spec: &TlsSpec) -> Result<Self, String> {
        let fingerprints = fingerprints(spec);
        let security = Security::read(spec)?;
        let expires = expiry(&spec.certificate);
        Ok(Self { spec: spec.clone(), fingerprints, security, expires })
    }

    /// Returns the path of our certificate.
    pub fn certificate(&self) -> &Path {
        &self.spec.certificate
    }

    /// Returns the configuration for new connections.
    pub const fn security(&self) -> &Security {
        &self.security
    }

    /// Reads the files again if one of them changed. Returns whether they were read.
    ///
    /// # Errors
    /// The files cannot be used; the old configuration stays in use.
    pub fn renew(&mut self) -> Result<bool, String> {
        if fingerprints(&self.spec) == self.fingerprints {
            return Ok(false);
        }
        *self = Self::read(&self.spec)?;
        Ok(true)
    }
}

/// Limits log lines about an expiring certificate: once, again after [`EXPIRY_LOG_NS`] (1 day), and
/// at once for another certificate.
#[derive(Debug, Default)]
pub struct ExpiryLog {
    /// The expiry that was logged last, in seconds since 1970, and when.
    last: Option<(i64, u64)>,
}

impl ExpiryLog {
    /// Returns whether to log now an expiry that is `days` away.
    pub fn admits(&mut self, now_ns: u64, expires: i64, days: i64) -> bool {
        let logged = self
            .last
            .is_some_and(|(last, at)| last == expires && now_ns < at.saturating_add(EXPIRY_LOG_NS));
        let admitted = days < EXPIRY_DAYS && !logged;
        if admitted {
            self.last = Some((expires, now_ns));
        }
        admitted
    }
}

/// Returns the days until a time in seconds since 1970; negative if it has passed.
pub fn days_until(seconds: i64) -> i64 {
    let now = i64::try_from(wall_ns() / 1_000_000_000).unwrap_or(i64::MAX);
    seconds.saturating_sub(now).div_euclid(86_400)
}

/// Returns the fingerprints of certificate, private key and authorities.
fn fingerprints(spec: &TlsSpec) -> [FileFingerprint; 3] {
    use std::os::unix::fs::MetadataExt as _;
    [&spec.certificate, &spec.private_key, &spec.authorities].map(|path| {
        let file = std::fs::metadata(path).ok()?;
        Some((file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
    })
}

/// Returns when the first certificate of a file expires, in seconds since 1970.
fn expiry(path: &Path) -> Option<i64> {
    let all = certificates(path, "certificate").ok()?;
    let (_, known) = x509_parser::parse_x509_certificate(all.first()?).ok()?;
    Some(known.validity().not_after.timestamp())
}

impl Security {
    /// Reads the files of a link.
    ///
    /// # Errors
    /// The file and its fault; never its contents.
    pub fn read(spec: &TlsSpec) -> Result<Self, String> {
        let peer = ServerName::try_from(spec.peer_name.clone()).map_err(|_| {
            format!("peer name {:?}: expected a DNS name or an IP address", spec.peer_name)
        })?;
        let own = certificates(&spec.certificate, "certificate")?;
        let key = private_key(&spec.private_key)?;
        let roots = Arc::new(authorities(&spec.authorities)?);
        let wrong = |e: Error| format!("certificate {}: {e}", spec.certificate.display());
        let provider = Arc::new(ring::default_provider());
        if spec.stream.listen.is_none() {
            let config = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[&rustls::version::TLS13])
                .map_err(wrong)?
                .with_root_certificates(roots)
                .with_client_auth_cert(own, key);
            let mut config = config.map_err(wrong)?;
            // No resumption: every connection verifies certificates.
            config.resumption = Resumption::disabled();
            return Ok(Self::Connects(Arc::new(config), peer));
        }
        let verifier = PeerNameVerifier::new(roots, provider.clone(), peer)
            .map_err(|e| format!("authorities {}: {e}", spec.authorities.display()))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_single_cert(own, key);
        let mut config = config.map_err(wrong)?;
        config.session_storage = Arc::new(NoSessionStore);
        // One ticket suffices to show the client that it was accepted.
        config.send_tls13_tickets = 1;
        Ok(Self::Listens(Arc::new(config)))
    }

    /// Returns a new connection.
    ///
    /// # Errors
    /// TLS rejects the configuration.
    pub fn begin(&self) -> Result<rustls::Connection, Error> {
        let mut connection: rustls::Connection = match self {
            Self::Connects(config, peer) => {
                ClientConnection::new(config.clone(), peer.clone())?.into()
            }
            Self::Listens(config) => ServerConnection::new(config.clone())?.into(),
        };
        connection.set_buffer_limit(Some(SEALED_BYTES_MAX));
        Ok(connection)
    }
}

/// Returns whether the peer accepted us. The listening side learns this in the handshake; the
/// connecting side may be refused later, so it waits for a first message. `late`: the time for a
/// refusal has passed.
pub fn is_accepted(connection: &rustls::Connection, late: bool) -> bool {
    match connection {
        _ if connection.is_handshaking() => false,
        rustls::Connection::Server(_) => true,
        rustls::Connection::Client(client) => late || client.tls13_tickets_received() > 0,
    }
}

/// Reads a file of at most [`CERTIFICATE_BYTES_MAX`] (1,048,576) bytes; `what` names it in errors.
fn read(path: &Path, what: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    let wrong = |text: String| format!("{what} {}: {text}", path.display());
    let file = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?;
    if file.len() > CERTIFICATE_BYTES_MAX {
        return Err(wrong(format!("longer than {CERTIFICATE_BYTES_MAX} bytes")));
    }
    std::fs::read(path).map(Zeroizing::new).map_err(|e| wrong(e.to_string()))
}

/// Reads the certificates of a PEM file; a file without any is an error.
fn certificates(path: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(path, what)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|e| format!("{what} {}: {e}", path.display()))?;
    if all.is_empty() {
        return Err(format!("{what} {}: the file has no PEM certificate", path.display()));
    }
    Ok(all)
}

/// Reads the private key of a PEM file.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = read(path, "private key")?;
    super::open::warn_if_readable(path);
    PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_| format!("private key {}: the file has no PEM private key", path.display()))
}

/// Reads the certificates of authorities from a PEM file.
fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, "authorities")? {
        roots.add(certificate).map_err(|e| format!("authorities {}: {e}", path.display()))?;
    }
    Ok(roots)
}

/// Verifies that a client's certificate comes from a configured authority and has the expected
/// name.
#[derive(Debug)]
struct PeerNameVerifier {
    /// Verifies the chain of certificates.
    by: Arc<dyn ClientCertVerifier>,
    /// The expected name of the peer.
    name: ServerName<'static>,
}

impl PeerNameVerifier {
    fn new(
        roots: Arc<RootCertStore>,
        provider: Arc<CryptoProvider>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::server::VerifierBuilderError> {
        let by = WebPkiClientVerifier::builder_with_provider(roots, provider).build()?;
        Ok(Self { by, name })
    }
}

impl ClientCertVerifier for PeerNameVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.by.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.by.verify_client_cert(end_entity, intermediates, now)?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, &self.name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by.supported_verify_schemes()
    }
}

/// A session store that keeps nothing, so that every connection verifies certificates. It claims to
/// store sessions, so that rustls sends a ticket, by which a client recognises that it was
/// accepted.
#[derive(Debug)]
struct NoSessionStore;

impl StoresServerSessions for NoSessionStore {
    fn put(&self, _key: Vec<u8>, _value: Vec<u8>) -> bool {
        true
    }

    fn get(&self, _key: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, _key: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// Returns the cause of a TLS error, in terms of the configuration.
pub fn explain(error: &Error) -> String {
    match error {
        Error::AlertReceived(alert) => {
            let why = match alert {
                AlertDescription::CertificateExpired => "our certificate has expired",
                AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                    "our certificate is not from an authority that it trusts"
                }
                AlertDescription::CertificateRequired => "it requires a certificate",
                AlertDescription::BadCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::AccessDenied => {
                    "our certificate does not match its configuration"
                }
                _ => "see its log",
            };
            format!("the peer refuses us ({alert:?}): {why}")
        }
        // A bad signature means an authority of the same name.
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "the peer's certificate is not from an authority that we trust".to_owned(),
        Error::InvalidCertificate(why) => format!("the peer's certificate is refused: {why}"),
        Error::NoCertificatesPresented => "the peer sent no certificate".to_owned(),
        Error::InvalidMessage(why) => format!("the peer's TLS messages are invalid: {why:?}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_expiry_is_logged_once_a_day_and_again_for_another_certificate() {
        let mut log = ExpiryLog::default();
        assert!(!log.admits(0, 7, EXPIRY_DAYS));
        let hours = |hours: u64| hours * 3_600_000_000_000;
        let admitted: Vec<u64> = (0..=50).filter(|h| log.admits(hours(*h), 7, 13)).collect();
        assert_eq!(admitted, [0, 24, 48]);
        assert!(log.admits(hours(51), 8, 1), "renewed, and expires soon as well");
        assert!(!log.admits(hours(52), 8, -1));
        assert!(log.admits(hours(75), 8, -2), "expired");
    }
}
