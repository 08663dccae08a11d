//! A plan in the form in which it is asked.

use crate::http::PlanState;
use crate::model::{Layer, Mode, Plan, Rule};
use crate::name;
use crate::rule_index::RuleIndex;

/// The server merges at most a few; more is a fault.
const LAYERS_MAX: usize = 16;
const RULES_MAX: usize = 20_000;

pub struct CompiledPlan {
    /// Its layers hold no rules: these are in the indexes.
    pub plan: Plan,
    /// What the HTTP half derives from the plan when it is first needed.
    pub http: PlanState,
    pub(crate) layers: Vec<CompiledLayer>,
    /// Whether a name decides anything. If not, a connection without one is as good as one with.
    pub(crate) looks_at_names: bool,
    /// Whether a rule about addresses makes TLS end here.
    pub(crate) reads_by_address: bool,
}

pub(crate) struct CompiledLayer {
    pub source: String,
    pub mode: Mode,
    pub log_only: bool,
    pub allow: RuleIndex,
    pub deny: RuleIndex,
}

impl CompiledPlan {
    /// Fails on what it cannot understand. No part of the message is of a secret.
    pub fn compile(mut plan: Plan) -> Result<CompiledPlan, String> {
        if plan.layers.len() > LAYERS_MAX {
            return Err(format!("more than {LAYERS_MAX} layers"));
        }
        if plan.layers.iter().map(|layer| layer.allow.len() + layer.deny.len()).sum::<usize>() > RULES_MAX {
            return Err(format!("more than {RULES_MAX} rules"));
        }
        for secret in &mut plan.secrets {
            for host in &mut secret.hosts {
                *host = name::normalise_pattern(host).ok_or("a secret has a host that is none")?;
            }
        }
        let layers = plan.layers.iter_mut().map(compile_layer).collect::<Result<Vec<_>, _>>()?;
        let lists = || layers.iter().flat_map(|layer| [&layer.allow, &layer.deny]);
        let looks_at_names = lists().any(RuleIndex::has_host_rules)
            || plan.secrets.iter().any(|secret| !secret.hosts.is_empty())
            || layers.iter().any(|layer| layer.mode == Mode::List && layer.allow.is_empty());
        let reads_by_address = lists().flat_map(RuleIndex::rules).any(|rule| rule.cidr.is_some() && reads(rule));
        Ok(CompiledPlan { plan, http: PlanState::default(), layers, looks_at_names, reads_by_address })
    }
}

fn compile_layer(layer: &mut Layer) -> Result<CompiledLayer, String> {
    Ok(CompiledLayer {
        source: layer.source.clone(),
        mode: layer.mode,
        log_only: layer.log_only,
        allow: RuleIndex::new(std::mem::take(&mut layer.allow))?,
        deny: RuleIndex::new(std::mem::take(&mut layer.deny))?,
    })
}

/// Whether a rule can only be judged on requests.
pub(crate) fn reads(rule: &Rule) -> bool {
    judges_requests(rule) || rule.inspect
}

pub(crate) fn judges_requests(rule: &Rule) -> bool {
    rule.methods.is_some() || rule.paths.is_some()
}
