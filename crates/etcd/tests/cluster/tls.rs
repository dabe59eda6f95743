//! etcd over TLS, with certificates on both sides.

use std::path::PathBuf;

use causeway_etcd::client::{Etcd, EtcdError};
use causeway_etcd::stream::{Security, SecurityFiles};
use causeway_testing::folder::Folder;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::hosts::EtcdServer;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn write(folder: &Folder, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn etcd_over_tls_admits_hosts_with_a_certificate_and_is_verified() {
    let (folder, ours, other) = (Folder::new("tls"), authority("ours"), authority("other"));
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &ours).unwrap();
    let authorities = write(&folder, "ca.pem", &ours.pem());
    let others = write(&folder, "other.pem", &other.pem());
    let certificate = write(&folder, "cert.pem", &certificate.pem());
    let key = write(&folder, "key.pem", &key.serialize_pem());
    let option = |name: &str, path: &PathBuf| format!("--{name}={}", path.display());
    let server = vec![
        option("cert-file", &certificate),
        option("key-file", &key),
        option("trusted-ca-file", &authorities),
        "--client-cert-auth".into(),
    ];
    let client = vec![
        option("etcd-ca", &authorities),
        option("etcd-cert", &certificate),
        option("etcd-key", &key),
    ];
    // The start waits until `causeway-directory group list` is answered with these options.
    let server = EtcdServer::start_with(Some((server, client)));

    let list = |authorities: Option<&PathBuf>, has_certificate: bool, url: &str| {
        let certificate = has_certificate.then(|| (certificate.clone(), key.clone()));
        let files = SecurityFiles { authorities: authorities.cloned(), certificate };
        let security = Security::read(&files).unwrap();
        Etcd::new(vec![url.parse().unwrap()], security, None).list("/causeway/")
    };
    let url = server.url();
    assert!(list(Some(&authorities), true, &url).is_ok());
    let refused = |result: Result<_, EtcdError>| result.unwrap_err().to_string();
    let text = refused(list(Some(&others), true, &url));
    assert!(text.contains("certificate"), "{text}");
    refused(list(Some(&authorities), false, &url));
    let text = refused(list(None, false, &url));
    assert!(text.contains("--etcd-ca"), "{text}");
    refused(list(None, false, &url.replace("https", "http")));
}
