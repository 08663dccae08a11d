//! Decides. All layers must let a connection or a request pass; in one, a matching `deny` refuses, then its mode decides.
//!
//! Before a request is known, a connection passes if some request could: a rule about methods or paths then allows, and does not deny.

use crate::compiled::{judges_requests, reads, CompiledLayer, CompiledPlan};
use crate::model::{Mode, Rule};
use crate::name::{self, Host};
use crate::path::Readings;
use std::net::IpAddr;

/// Where a connection or a request goes.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// As the client sent it: a name, or an address, which only rules about addresses allow.
    pub host: Option<&'a str>,
    pub address: Option<IpAddr>,
    pub port: u16,
    /// Method and path. The path may have a query; it is judged in all its readings.
    pub request: Option<(&'a str, &'a str)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Allow {
        rule: Option<String>,
    },
    /// A layer that only records would have refused.
    WouldDeny {
        rule: Option<String>,
        layer: String,
    },
    Deny {
        rule: Option<String>,
        reason: String,
    },
}

impl Verdict {
    pub fn is_denied(&self) -> bool {
        matches!(self, Verdict::Deny { .. })
    }

    pub fn rule(&self) -> Option<&str> {
        match self {
            Verdict::Allow { rule } | Verdict::WouldDeny { rule, .. } | Verdict::Deny { rule, .. } => rule.as_deref(),
        }
    }
}

pub fn decide(plan: &CompiledPlan, target: &Target<'_>) -> Verdict {
    let readings = target.request.map(|(method, path)| (method, Readings::of(path)));
    let (host, address) = match target.host.map(Host::parse) {
        None => (None, target.address),
        Some(Some(Host::Name(host))) => (Some(host), target.address),
        Some(Some(Host::Address(address))) => (None, Some(address)),
        Some(None) if plan.looks_at_names => return refusal("the name of the host is not valid"),
        Some(None) => (None, target.address),
    };
    let on_port = |rule: &Rule| names_port(rule, target.port).unwrap_or(true);
    each_layer(
        plan,
        |layer| {
            layer.deny.find(host.as_deref(), address, |rule| {
                on_port(rule)
                    && match &readings {
                        None => !judges_requests(rule),
                        Some((method, path)) => {
                            let same = |known: &String| known.eq_ignore_ascii_case(method);
                            rule.methods.as_ref().is_none_or(|methods| methods.iter().any(same))
                                && rule.paths.as_ref().is_none_or(|patterns| path.any_matches(patterns))
                        }
                    }
            })
        },
        |layer| {
            layer.allow.find(host.as_deref(), address, |rule| {
                on_port(rule)
                    && readings.as_ref().is_none_or(|(method, path)| {
                        rule.methods.as_ref().is_none_or(|methods| methods.iter().any(|known| known == method))
                            && rule.paths.as_ref().is_none_or(|patterns| path.all_match(patterns))
                    })
            })
        },
    )
}

/// Decides for a protocol that tells no name: the names are those that the sandbox resolved to the address. A rule about a host allows only if
/// it names the port; one about methods or paths cannot be checked and does not allow.
pub fn decide_opaque(plan: &CompiledPlan, names: &[String], address: Option<IpAddr>, port: u16) -> Verdict {
    each_layer(
        plan,
        |layer| {
            let suits = |rule: &Rule| names_port(rule, port).unwrap_or(true) && !judges_requests(rule);
            find_any(names, address, |name, address| layer.deny.find(name, address, suits))
        },
        |layer| {
            let suits = |rule: &Rule| names_port(rule, port).unwrap_or(rule.cidr.is_some()) && !judges_requests(rule);
            find_any(names, address, |name, address| layer.allow.find(name, address, suits))
        },
    )
}

fn find_any<'a>(
    names: &[String],
    address: Option<IpAddr>,
    find: impl Fn(Option<&str>, Option<IpAddr>) -> Option<&'a Rule>,
) -> Option<&'a Rule> {
    find(None, address).or_else(|| names.iter().find_map(|name| find(Some(name), None)))
}

/// Decides whether a (normalised) name may be resolved: whether a connection to it could pass on some port.
pub fn decide_name(plan: &CompiledPlan, host: &str) -> Verdict {
    each_layer(
        plan,
        |layer| layer.deny.find(Some(host), None, |rule| rule.ports.is_none() && !judges_requests(rule)),
        |layer| layer.allow.find(Some(host), None, |_| true),
    )
}

/// Whether a host on this port could pass if it had the right name.
pub fn some_name_passes(plan: &CompiledPlan, port: u16) -> bool {
    plan.layers.iter().all(|layer| {
        let allows = |rule: &Rule| rule.host.is_some() && names_port(rule, port).unwrap_or(true);
        layer.log_only
            || match layer.mode {
                Mode::None => false,
                Mode::All => true,
                Mode::List => layer.allow.rules().iter().any(allows),
            }
    })
}

/// Whether TLS to this host ends here: a secret may be used there, or a rule judges requests.
pub fn must_read(plan: &CompiledPlan, host: &str, port: u16) -> bool {
    match Host::parse(host) {
        Some(Host::Name(host)) => must_read_at(plan, Some(&host), None, port),
        Some(Host::Address(address)) => must_read_at(plan, None, Some(address), port),
        None => false,
    }
}

/// The same for a normalised name, an address, or both.
pub fn must_read_at(plan: &CompiledPlan, host: Option<&str>, address: Option<IpAddr>, port: u16) -> bool {
    let on_port = |rule: &Rule| reads(rule) && names_port(rule, port).unwrap_or(true);
    let by_secret =
        |host: &str| plan.plan.secrets.iter().flat_map(|secret| &secret.hosts).any(|known| name::matches(known, host));
    host.is_some_and(by_secret)
        || plan
            .layers
            .iter()
            .flat_map(|layer| [&layer.allow, &layer.deny])
            .any(|rules| rules.find(host, address, on_port).is_some())
}

/// Whether an allow rule names this host (`*` does not) or a network of this address (that of all addresses does not). Only such a rule opens
/// what is private to the operator.
pub fn opens_private(plan: &CompiledPlan, host: Option<&str>, address: IpAddr, port: Option<u16>) -> bool {
    plan.layers.iter().any(|layer| {
        layer
            .allow
            .find(host, Some(address), |rule| {
                rule.host.as_deref() != Some("*")
                    && rule.cidr.is_none_or(|network| network.prefix_len() > 0)
                    && port.is_none_or(|port| names_port(rule, port).unwrap_or(true))
            })
            .is_some()
    })
}

/// Whether an allow rule names this host; `*` does not.
pub fn is_named(plan: &CompiledPlan, host: &str) -> bool {
    let named = |rule: &Rule| rule.host.as_deref() != Some("*");
    plan.layers.iter().any(|layer| layer.allow.find(Some(host), None, named).is_some())
}

/// Whether nothing depends on what is asked for.
pub fn lets_all_pass(plan: &CompiledPlan) -> bool {
    plan.layers.iter().all(|layer| layer.log_only || layer.mode == Mode::All && layer.deny.is_empty())
}

/// Whether every layer lets every name pass that it does not deny.
pub fn lets_all_names_pass(plan: &CompiledPlan) -> bool {
    plan.layers.iter().all(|layer| layer.log_only || layer.mode == Mode::All)
}

/// Whether the rule names the port; absent if it names none.
fn names_port(rule: &Rule, port: u16) -> Option<bool> {
    rule.ports.as_ref().map(|ranges| ranges.iter().any(|(first, last)| (*first..=*last).contains(&port)))
}

fn each_layer<'a>(
    plan: &'a CompiledPlan,
    denying: impl Fn(&'a CompiledLayer) -> Option<&'a Rule>,
    allowing: impl Fn(&'a CompiledLayer) -> Option<&'a Rule>,
) -> Verdict {
    let mut allowed: Option<&Rule> = None;
    let mut recorded: Option<Verdict> = None;
    for layer in &plan.layers {
        let denial = match denying(layer) {
            Some(rule) => Some((Some(rule.id.clone()), format!("denied by {}", rule.id))),
            None => match (layer.mode, allowing(layer)) {
                (Mode::None, _) => Some((None, format!("{} allows nothing", layer.source))),
                (Mode::List, None) => Some((None, format!("not on the list of {}", layer.source))),
                (_, found) => {
                    allowed = found.or(allowed);
                    None
                }
            },
        };
        match denial {
            Some((rule, reason)) if !layer.log_only => return Verdict::Deny { rule, reason },
            Some((rule, _)) => {
                recorded.get_or_insert_with(|| Verdict::WouldDeny { rule, layer: layer.source.clone() });
            }
            None => {}
        }
    }
    recorded.unwrap_or_else(|| Verdict::Allow { rule: allowed.map(|rule| rule.id.clone()) })
}

pub fn refusal(reason: &str) -> Verdict {
    Verdict::Deny { rule: None, reason: reason.to_owned() }
}

#[cfg(test)]
#[path = "policy_test.rs"]
mod tests;
