//! The whole table, and changes of it.

use serde_json::json;

use super::*;
use crate::fixtures::{End, config, http, rules_of, service, web};

const TWO: &[End<'_>] = &[("10.244.1.2", "here", "ready"), ("10.244.2.2", "there", "ready")];

fn rules(ip: &str, endpoints: &[End<'_>], affinity_seconds: Option<u32>) -> RuleSet {
    let mut spec = web(ip);
    if let Some(seconds) = affinity_seconds {
        spec["sessionAffinity"] = json!("ClientIP");
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
    }
    rules_of(&service("web", spec), &[http("web", endpoints)])
}

#[test]
fn the_table_of_a_cluster_without_services() {
    insta::assert_snapshot!(whole(&config(), &RuleSet::default()));
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let rules = rules("10.96.0.1", TWO, None);
    assert_eq!(change(&config(), &rules, &rules), "");
}

#[test]
fn an_endpoint_more_is_one_chain_written_anew() {
    insta::assert_snapshot!(change(&config(), &rules("10.96.0.1", &TWO[..1], None), &rules("10.96.0.1", TWO, None)));
}

#[test]
fn the_last_endpoint_gone_is_a_refusal() {
    insta::assert_snapshot!(change(&config(), &rules("10.96.0.1", TWO, None), &rules("10.96.0.1", &[], None)));
}

#[test]
fn a_service_gone_leaves_nothing() {
    insta::assert_snapshot!(change(&config(), &rules("10.96.0.1", TWO, Some(60)), &RuleSet::default()));
}

#[test]
fn another_time_is_another_set() {
    insta::assert_snapshot!(change(&config(), &rules("10.96.0.1", &TWO[..1], Some(60)), &rules("10.96.0.1", &TWO[..1], Some(90))));
}
