//! What the server says of a sandbox, and what is reported of its connections. Shapes as in docs/internals/egress.md.

use crate::limits::Limits;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The first frame of the server.
#[derive(Deserialize)]
pub struct Start {
    pub listen: SocketAddr,
    pub dns: SocketAddr,
    /// What sandboxes know as the address of the proxy.
    pub explicit: SocketAddr,
    pub resolvers: Vec<SocketAddr>,
    /// PEM: what the certificates of hosts are checked against.
    pub roots: String,
    /// Networks that nobody reaches.
    pub denied: Vec<IpNet>,
    /// Networks of those that an allow rule may open.
    #[serde(default)]
    pub private: Vec<IpNet>,
    /// The operator's proxy.
    pub upstream: Option<String>,
    #[serde(default)]
    pub own_names: HashMap<String, Ipv4Addr>,
    #[serde(default)]
    pub limits: Limits,
}

/// A sandbox and the plan that is in force from now on.
#[derive(Deserialize)]
pub struct Put {
    pub sandbox: String,
    pub address: IpAddr,
    pub plan: Plan,
}

/// The sandbox has ended.
#[derive(Deserialize)]
pub struct Ended {
    pub sandbox: String,
}

/// What every frame of the server has.
#[derive(Deserialize)]
pub struct Frame {
    pub op: String,
    pub seq: u64,
}

/// What a sandbox may reach, and the secrets that it uses.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub layers: Vec<Layer>,
    #[serde(default)]
    pub secrets: Vec<Secret>,
    pub authority: Option<AuthorityText>,
    /// Open connections; those beyond are refused.
    pub connections_max: Option<usize>,
}

/// All layers must let a request pass.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    pub source: String,
    pub mode: Mode,
    #[serde(default)]
    pub log_only: bool,
    #[serde(default)]
    pub allow: Vec<Rule>,
    #[serde(default)]
    pub deny: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    None,
    List,
    All,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub id: String,
    pub host: Option<String>,
    pub cidr: Option<ipnet::IpNet>,
    /// Inclusive ranges; absent: any port.
    pub ports: Option<Vec<(u16, u16)>>,
    /// In upper case; absent: any.
    pub methods: Option<Vec<String>>,
    pub paths: Option<Vec<String>>,
    #[serde(default)]
    pub inspect: bool,
}

/// Where a placeholder is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    Header,
    Basic,
    Body,
    Query,
    Path,
}

#[derive(Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    #[zeroize(skip)]
    pub name: String,
    #[zeroize(skip)]
    pub placeholders: Vec<String>,
    pub value: String,
    #[zeroize(skip)]
    pub hosts: Vec<String>,
    #[serde(rename = "in")]
    #[zeroize(skip)]
    pub places: Vec<Place>,
    #[zeroize(skip)]
    pub sign: Option<Signing>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({})", self.name)
    }
}

/// A scheme whose signature is made with the secret, so that no header carries it.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Signing {
    AwsSigv4 { access_key_placeholder: String, access_key: String },
}

#[derive(Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
pub struct AuthorityText {
    #[zeroize(skip)]
    pub certificate: String,
    pub key: String,
}

impl std::fmt::Debug for AuthorityText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthorityText")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Allowed,
    Denied,
    WouldDeny,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Tls,
    Http,
    Https,
    Tcp,
    Dns,
    H2,
    Ws,
}

/// An entry of the egress log. No field ever holds a value of a secret: path and host are as the sandbox sent them.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    pub sandbox: String,
    /// Milliseconds since 1970.
    pub time: u64,
    pub decision: Decision,
    pub protocol: Protocol,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    pub port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub sent: u64,
    pub received: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    pub ms: u64,
}

impl Entry {
    /// One whose sandbox and time are filled where it is reported.
    pub fn new(decision: Decision, protocol: Protocol, port: u16) -> Entry {
        Entry {
            sandbox: String::new(),
            time: 0,
            decision,
            protocol,
            host: None,
            address: None,
            port,
            method: None,
            path: None,
            status: None,
            rule: None,
            reason: None,
            sent: 0,
            received: 0,
            secrets: Vec::new(),
            ms: 0,
        }
    }
}
