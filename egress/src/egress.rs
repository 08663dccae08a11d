//! What the whole process shares: what the server said at the start, and what sandboxes there are.

use crate::compiled::CompiledPlan;
use crate::dns::resolver::Resolver;
use crate::limits::Limits;
use crate::model::Start;
use crate::name;
use crate::output::Output;
use crate::policy;
use crate::process;
use crate::sandboxes::Sandboxes;
use crate::tunnel::pipes::Pipes;
use crate::upstream::Upstream;
use ipnet::{IpNet, Ipv4Net};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

const OTHER_FILES: usize = 256;

/// Addresses that mean this host or none, or many: denied whatever the server says.
const NOBODYS: [([u8; 4], u8); 4] = [([0, 0, 0, 0], 8), ([127, 0, 0, 0], 8), ([224, 0, 0, 0], 4), ([240, 0, 0, 0], 4)];

pub struct Egress {
    pub listen: SocketAddr,
    pub dns: SocketAddr,
    pub explicit: SocketAddr,
    denied: Vec<IpNet>,
    private: Vec<IpNet>,
    pub limits: Limits,
    pub resolver: Arc<Resolver>,
    pub upstream: Option<Upstream>,
    pub tls: Arc<rustls::ClientConfig>,
    pub own_names: HashMap<String, Ipv4Addr>,
    pub output: Output,
    pub sandboxes: Sandboxes,
    pub pipes: Pipes,
}

impl Egress {
    pub fn new(start: Start, output: Output) -> Result<Egress, String> {
        let files = process::files_max();
        let mut limits = start.limits;
        // A connection has two descriptors; a quarter of all is for pipes, and some are for questions.
        let bearable = (files - files / 4).saturating_sub(OTHER_FILES) / 2;
        if bearable < limits.connections_max {
            output.trouble(format!(
                "with {files} descriptors at most {bearable} connections are taken, not {}",
                limits.connections_max
            ));
            limits.connections_max = bearable;
        }
        let own_names = start.own_names.iter().map(|(text, address)| {
            name::normalise(text).map(|name| (name, *address)).ok_or(format!("{text:?} is no name"))
        });
        let upstream = start.upstream.as_deref().map(Upstream::parse).transpose()?;
        Ok(Egress {
            listen: start.listen,
            dns: start.dns,
            explicit: start.explicit,
            denied: start.denied.into_iter().chain(NOBODYS.map(network)).collect(),
            private: start.private,
            resolver: Arc::new(Resolver::new(start.resolvers, limits.dns_in_flight_max)),
            upstream,
            tls: Arc::new(upstream_tls(&start.roots)?),
            own_names: own_names.collect::<Result<_, _>>()?,
            output,
            sandboxes: Sandboxes::default(),
            pipes: Pipes::new(files / 8),
            limits,
        })
    }

    /// Whether nobody's rules stand against an address: what is denied to all is opened only by a rule that names the host or a network, and only
    /// where the operator lets rules do that.
    pub fn may_reach(&self, plan: &CompiledPlan, host: Option<&str>, address: IpAddr, port: Option<u16>) -> bool {
        let within = |networks: &[IpNet]| networks.iter().any(|network| network.contains(&address));
        !within(&self.denied) || within(&self.private) && policy::opens_private(plan, host, address, port)
    }
}

fn network((address, bits): ([u8; 4], u8)) -> IpNet {
    IpNet::V4(Ipv4Net::new(address.into(), bits).expect("a constant network has a valid prefix"))
}

fn upstream_tls(roots: &str) -> Result<rustls::ClientConfig, String> {
    let mut store = rustls::RootCertStore::empty();
    let mut text = roots.as_bytes();
    let certificates = rustls_pemfile::certs(&mut text).filter_map(Result::ok);
    let (added, _) = store.add_parsable_certificates(certificates);
    if added == 0 && !roots.trim().is_empty() {
        return Err("roots holds no certificate".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(|fault| fault.to_string())?.with_root_certificates(store).with_no_client_auth())
}
