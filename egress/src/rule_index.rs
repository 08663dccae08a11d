//! The rules of one list by what they are looked up with, so that hundreds of them cost what a few do.

use crate::model::Rule;
use crate::name;
use ipnet::IpNet;
use std::collections::HashMap;
use std::net::IpAddr;

#[derive(Debug, Default)]
pub struct RuleIndex {
    rules: Vec<Rule>,
    exact: HashMap<String, Vec<u32>>,
    /// By `example.com` of `*.example.com`.
    below: HashMap<String, Vec<u32>>,
    any: Vec<u32>,
    networks: Vec<(IpNet, u32)>,
}

impl RuleIndex {
    /// Fails on a rule that is not of the documented shape: a rule that cannot be understood must not be passed over.
    pub fn new(rules: Vec<Rule>) -> Result<RuleIndex, String> {
        let mut index = RuleIndex::default();
        for (number, rule) in (0u32..).zip(&rules) {
            match (&rule.host, &rule.cidr) {
                (Some(host), None) => index.add_host(host, number).ok_or_else(|| fault(rule, "has no valid host"))?,
                (None, Some(network)) => index.networks.push((network.trunc(), number)),
                _ => return Err(fault(rule, "must have a host or a cidr")),
            }
            if rule.ports.iter().flatten().any(|(first, last)| first > last) {
                return Err(fault(rule, "has a range of ports that ends before it begins"));
            }
        }
        index.rules = rules;
        Ok(index)
    }

    fn add_host(&mut self, host: &str, number: u32) -> Option<()> {
        let pattern = name::normalise_pattern(host)?;
        match pattern.strip_prefix("*.") {
            Some(parent) => self.below.entry(parent.to_owned()).or_default().push(number),
            None if pattern == "*" => self.any.push(number),
            None => self.exact.entry(pattern).or_default().push(number),
        }
        Some(())
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub fn has_host_rules(&self) -> bool {
        !(self.exact.is_empty() && self.below.is_empty() && self.any.is_empty())
    }

    /// The first rule in the order of the list that names this host or address and that `suits`.
    pub fn find(
        &self,
        host: Option<&str>,
        address: Option<IpAddr>,
        mut suits: impl FnMut(&Rule) -> bool,
    ) -> Option<&Rule> {
        let mut first: Option<u32> = None;
        let mut look = |numbers: &[u32]| {
            let before = first.unwrap_or(u32::MAX);
            let found = numbers.iter().copied().take_while(|number| *number < before);
            if let Some(number) = { found }.find(|number| suits(&self.rules[*number as usize])) {
                first = Some(number);
            }
        };
        if let Some(host) = host {
            look(&self.any);
            look(self.exact.get(host).map_or(&[], Vec::as_slice));
            for (dot, _) in host.match_indices('.') {
                look(self.below.get(&host[dot + 1..]).map_or(&[], Vec::as_slice));
            }
        }
        if let Some(address) = address {
            for (network, number) in &self.networks {
                if network.contains(&address) {
                    look(&[*number]);
                }
            }
        }
        first.map(|number| &self.rules[number as usize])
    }
}

fn fault(rule: &Rule, what: &str) -> String {
    format!("rule {} {what}", rule.id)
}
