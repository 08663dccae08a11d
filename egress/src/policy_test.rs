use super::*;
use crate::model::Plan;
use serde_json::{json, Value};

fn plan(layers: Value) -> CompiledPlan {
    plan_with(layers, json!([]))
}

fn plan_with(layers: Value, secrets: Value) -> CompiledPlan {
    let plan: Plan = serde_json::from_value(json!({ "layers": layers, "secrets": secrets })).unwrap();
    CompiledPlan::compile(plan).unwrap()
}

fn list(allow: Value) -> Value {
    json!([{ "source": "creation", "mode": "list", "allow": allow }])
}

fn to(host: &str, port: u16) -> Target<'_> {
    Target { host: Some(host), address: None, port, request: None }
}

fn at(address: &str, port: u16) -> Target<'static> {
    Target { host: None, address: Some(address.parse().unwrap()), port, request: None }
}

fn request<'a>(host: &'a str, method: &'a str, path: &'a str) -> Target<'a> {
    Target { request: Some((method, path)), ..to(host, 443) }
}

fn passes(plan: &CompiledPlan, target: &Target<'_>) -> bool {
    !decide(plan, target).is_denied()
}

#[test]
fn a_list_lets_pass_what_it_names() {
    let plan = plan(list(json!([
        { "id": "a0", "host": "API.example.com." },
        { "id": "a1", "host": "*.cdn.example", "ports": [[443, 443], [8000, 8010]] },
        { "id": "a2", "cidr": "198.51.100.0/24" },
    ])));
    assert_eq!(decide(&plan, &to("api.EXAMPLE.com", 9)), Verdict::Allow { rule: Some("a0".into()) });
    assert!(passes(&plan, &to("x.y.cdn.example", 8010)));
    assert!(!passes(&plan, &to("x.cdn.example", 80)));
    assert!(!passes(&plan, &to("cdn.example", 443)));
    assert!(!passes(&plan, &to("evil-api.example.com", 443)));
    assert!(passes(&plan, &at("198.51.100.7", 5)));
    assert!(!passes(&plan, &at("198.51.101.7", 5)));
    // An address in the place of a name is an address.
    assert!(passes(&plan, &to("198.51.100.7", 80)));
    assert!(!passes(&plan, &to("[2001:db8::1]", 80)));
    assert!(!passes(&plan, &to("api.example.com\0.evil", 80)));
    assert!(!passes(&plan, &to("", 80)));
}

#[test]
fn all_layers_must_let_pass_and_a_denial_wins() {
    let plan = plan(json!([
        { "source": "organisation", "mode": "all", "deny": [{ "id": "o", "host": "*.bad.example" }, { "id": "net", "cidr": "203.0.113.0/24" }] },
        { "source": "creation", "mode": "list", "allow": [{ "id": "c", "host": "*" }] },
    ]));
    assert!(passes(&plan, &to("good.example", 443)));
    let denied = decide(&plan, &to("x.bad.example", 443));
    assert_eq!(denied, Verdict::Deny { rule: Some("o".into()), reason: "denied by o".into() });
    let by_address = Target { address: Some("203.0.113.9".parse().unwrap()), ..to("good.example", 443) };
    assert_eq!(decide(&plan, &by_address).rule(), Some("net"));
    // `*` is every name, and an address is none.
    assert!(!passes(&plan, &at("192.0.2.1", 443)));
}

#[test]
fn a_layer_that_only_records_refuses_nothing() {
    let recorded = json!({ "source": "image", "mode": "none", "log_only": true });
    let both = plan(
        json!([recorded, { "source": "creation", "mode": "list", "allow": [{ "id": "c", "host": "a.example" }] }]),
    );
    assert_eq!(decide(&both, &to("a.example", 1)), Verdict::WouldDeny { rule: None, layer: "image".into() });
    assert!(decide(&both, &to("b.example", 1)).is_denied());
    assert!(lets_all_names_pass(&plan(json!([recorded]))));
}

#[test]
fn no_layer_lets_all_pass() {
    let plan = plan(json!([]));
    assert!(passes(&plan, &to("a.example", 1)) && passes(&plan, &at("192.0.2.1", 1)) && lets_all_pass(&plan));
    assert!(passes(&plan, &to("not a name", 1)));
}

#[test]
fn requests_are_judged_by_method_and_path() {
    let allowing = plan(list(json!([{ "id": "r", "host": "a.example", "methods": ["GET"], "paths": ["/v1/*"] }])));
    assert!(passes(&allowing, &to("a.example", 443)));
    assert!(passes(&allowing, &request("a.example", "GET", "/v1/x?y")));
    for (method, path) in [("POST", "/v1/x"), ("get", "/v1/x"), ("GET", "/v2"), ("GET", "/v1/%2e%2e/v2")] {
        assert!(!passes(&allowing, &request("a.example", method, path)), "{method} {path}");
    }
    let denying = plan(
        json!([{ "source": "s", "mode": "all", "deny": [{ "id": "d", "host": "a.example", "methods": ["POST"], "paths": ["/admin*"] }] }]),
    );
    assert!(passes(&denying, &to("a.example", 443)));
    assert!(passes(&denying, &request("a.example", "GET", "/admin")));
    assert!(!passes(&denying, &request("a.example", "post", "//admin/x")));
}

#[test]
fn tls_is_read_where_requests_are_judged_or_a_secret_is_used() {
    let secret =
        json!({ "name": "T", "placeholders": ["p"], "value": "v", "hosts": ["*.Secret.example"], "in": ["header"] });
    let plan = plan_with(
        json!([{ "source": "s", "mode": "all",
            "allow": [{ "id": "i", "host": "i.example", "ports": [[443, 443]], "inspect": true }, { "id": "plain", "host": "plain.example" }],
            "deny": [{ "id": "d", "host": "d.example", "methods": ["PUT"] }, { "id": "n", "cidr": "198.51.100.0/24", "paths": ["/x"] }] }]),
        json!([secret]),
    );
    assert!(must_read(&plan, "i.example", 443) && !must_read(&plan, "i.example", 8443));
    assert!(must_read(&plan, "d.example", 1) && must_read(&plan, "A.secret.example", 1));
    assert!(!must_read(&plan, "plain.example", 443) && !must_read(&plan, "secret.example", 1));
    assert!(must_read(&plan, "198.51.100.1", 443) && plan.reads_by_address);
}

#[test]
fn a_protocol_without_a_name_needs_a_rule_that_names_the_port() {
    let plan = plan(list(json!([
        { "id": "any", "host": "web.example" },
        { "id": "db", "host": "db.example", "ports": [[5432, 5432]] },
        { "id": "read", "host": "read.example", "ports": [[5432, 5432]], "methods": ["GET"] },
        { "id": "net", "cidr": "198.51.100.0/24" },
    ])));
    let address = |text: &str| Some(text.parse().unwrap());
    let opaque = |names: &[&str], at: &str, port| {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        !decide_opaque(&plan, &names, address(at), port).is_denied()
    };
    assert!(opaque(&["x.example", "db.example"], "192.0.2.1", 5432));
    assert!(!opaque(&["db.example"], "192.0.2.1", 22));
    assert!(!opaque(&["web.example"], "192.0.2.1", 22));
    assert!(!opaque(&["read.example"], "192.0.2.1", 5432));
    assert!(!opaque(&[], "192.0.2.1", 5432));
    assert!(opaque(&[], "198.51.100.1", 22));
}

#[test]
fn a_name_resolves_if_it_could_pass_on_some_port() {
    let plan = plan(json!([
        { "source": "s", "mode": "list", "allow": [{ "id": "a", "host": "*.example", "ports": [[1, 2]] }, { "id": "n", "cidr": "0.0.0.0/0" }],
          "deny": [{ "id": "d", "host": "bad.example" }, { "id": "p", "host": "half.example", "ports": [[1, 1]] }] },
    ]));
    let resolves = |name: &str| !decide_name(&plan, name).is_denied();
    assert!(resolves("a.example") && resolves("half.example"));
    assert!(!resolves("bad.example") && !resolves("example") && !resolves("a.test"));
}

#[test]
fn only_a_rule_that_names_it_opens_what_is_private() {
    let address: IpAddr = "10.1.2.3".parse().unwrap();
    let opens = |allow: Value, host: Option<&str>| opens_private(&plan(list(allow)), host, address, Some(443));
    assert!(opens(json!([{ "id": "a", "host": "in.example" }]), Some("in.example")));
    assert!(opens(json!([{ "id": "a", "host": "*.in.example" }]), Some("a.in.example")));
    assert!(opens(json!([{ "id": "a", "cidr": "10.1.0.0/16" }]), None));
    assert!(!opens(json!([{ "id": "a", "host": "*" }]), Some("in.example")));
    assert!(!opens(json!([{ "id": "a", "cidr": "0.0.0.0/0" }]), None));
    assert!(!opens(json!([{ "id": "a", "host": "in.example", "ports": [[80, 80]] }]), Some("in.example")));
    assert!(!opens_private(&plan(json!([{ "source": "s", "mode": "all" }])), Some("in.example"), address, None));
}

#[test]
fn a_plan_that_is_not_understood_is_refused() {
    for rule in [
        json!({ "id": "x" }),
        json!({ "id": "x", "host": "a.example", "cidr": "192.0.2.0/24" }),
        json!({ "id": "x", "host": "a b" }),
        json!({ "id": "x", "host": "*example.com" }),
        json!({ "id": "x", "host": "a.example", "ports": [[5, 4]] }),
    ] {
        let layers = list(json!([rule]));
        let plan: Plan = serde_json::from_value(json!({ "layers": layers })).unwrap();
        assert!(CompiledPlan::compile(plan).is_err(), "{rule}");
    }
}

#[test]
fn thousands_of_rules_are_looked_up_in_the_order_of_the_list() {
    let mut rules: Vec<Value> =
        (0..5000).map(|number| json!({ "id": format!("r{number}"), "host": format!("h{number}.example") })).collect();
    rules.push(json!({ "id": "late", "host": "*.example" }));
    let plan = plan(list(Value::Array(rules)));
    assert_eq!(decide(&plan, &to("h4321.example", 1)).rule(), Some("r4321"));
    assert_eq!(decide(&plan, &to("other.example", 1)).rule(), Some("late"));
}
