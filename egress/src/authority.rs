//! The certificate authority of a sandbox's lineage. Its certificate is in the trust stores of the sandbox, its key never is.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::io::{Error, ErrorKind, Result};
use std::net::IpAddr;
use std::sync::Arc;
use time::{Duration, OffsetDateTime};
use zeroize::Zeroizing;

const NAME: &str = "Atoll egress";
const AUTHORITY_DAYS: i64 = 3653;
const LEAF_DAYS: i64 = 30;
/// Clocks of sandboxes that slept are behind for a moment.
const BACKDATED: Duration = Duration::HOUR;

/// A new authority as PEM texts: certificate, private key (PKCS #8).
pub fn new() -> Result<(String, Zeroizing<String>)> {
    let key = KeyPair::generate().map_err(fault)?;
    let certificate = issuer_params().and_then(|params| params.self_signed(&key).map_err(fault))?;
    Ok((certificate.pem(), Zeroizing::new(key.serialize_pem())))
}

/// Prints a new authority as a JSON line.
pub fn print_new() -> Result<()> {
    let (certificate, key) = new()?;
    println!("{}", serde_json::json!({ "certificate": certificate, "key": *key }));
    Ok(())
}

fn issuer_params() -> Result<CertificateParams> {
    let mut params = common_params(NAME, AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn common_params(name: &str, days: i64) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = OffsetDateTime::now_utc() - BACKDATED;
    params.not_after = params.not_before + Duration::days(days);
    // Two certificates of one issuer and serial number are refused by some clients.
    let mut serial = [0; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| Error::other("no random numbers"))?;
    serial[0] = serial[0] & 0x3f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

fn fault(error: rcgen::Error) -> Error {
    Error::new(ErrorKind::InvalidData, error)
}

/// An authority that signs certificates of hosts. All of them have one key, which lives as long as this value.
pub struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Certificate,
    key: KeyPair,
    leaf_key: KeyPair,
}

impl Authority {
    /// Reads the PEM texts of `new`. Fails if the certificate is not of this key.
    pub fn read(certificate: &str, key: &str) -> Result<Authority> {
        let key = KeyPair::from_pem(key).map_err(fault)?;
        let certificate = rustls_pemfile::certs(&mut certificate.as_bytes())
            .next()
            .ok_or_else(|| Error::new(ErrorKind::InvalidData, "the authority has no certificate"))??;
        if memchr::memmem::find(&certificate, key.public_key_raw()).is_none() {
            return Err(Error::new(ErrorKind::InvalidData, "the authority's certificate is not of its key"));
        }
        // Name and key are all that a leaf takes from its issuer, so a copy signs what the original would.
        let issuer = issuer_params()?.self_signed(&key).map_err(fault)?;
        Ok(Authority { certificate, issuer, key, leaf_key: KeyPair::generate().map_err(fault)? })
    }

    /// A certificate for a host (a name, or an address without brackets).
    pub fn certify(&self, host: &str) -> Result<Arc<CertifiedKey>> {
        let mut params = common_params(&host[..host.len().min(64)], LEAF_DAYS)?;
        params.subject_alt_names = vec![match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.try_into().map_err(fault)?),
        }];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&self.leaf_key, &self.issuer, &self.key).map_err(fault)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der()));
        let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(Error::other)?;
        Ok(Arc::new(CertifiedKey::new(vec![leaf.der().clone(), self.certificate.clone()], key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::client::WebPkiServerVerifier;
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::RootCertStore;

    #[test]
    fn a_leaf_is_valid_for_its_host_alone_and_under_its_authority_alone() {
        let verifier = |certificate: &str| {
            let mut roots = RootCertStore::empty();
            roots.add(rustls_pemfile::certs(&mut certificate.as_bytes()).next().unwrap().unwrap()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap()
        };
        let (certificate, key) = new().unwrap();
        let (other, other_key) = new().unwrap();
        let authority = Authority::read(&certificate, &key).unwrap();
        for host in ["api.example.com", "xn--bcher-kva.example", "192.0.2.7"] {
            let leaf = authority.certify(host).unwrap();
            let verify = |root: &str, name: &str| {
                let name = ServerName::try_from(name.to_owned()).unwrap();
                verifier(root).verify_server_cert(&leaf.cert[0], &leaf.cert[1..], &name, &[], UnixTime::now())
            };
            assert!(verify(&certificate, host).is_ok(), "{host}");
            assert!(verify(&certificate, "www.example.com").is_err());
            assert!(verify(&other, host).is_err());
        }
        assert!(Authority::read(&certificate, &other_key).is_err());
        assert!(Authority::read("", &key).is_err());
    }
}
