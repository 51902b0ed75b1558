//! Proposals of WebAssembly: those that are on, those that an annotation switches on, and a policy that forbids the annotation.

use serde_json::json;
use tests::{Kubectl, eventually};

use super::{ends_with, pod};
use crate::modules;

pub fn import(import: &dyn Fn(&str, &[u8])) {
    import("collects", &modules::garbage_collection());
    import("throws", &modules::exceptions());
    import("threads", &modules::threads());
    import("switches", &modules::stack_switching());
}

pub fn proposals_are_on_or_named(kubectl: &Kubectl<'_>) {
    for image in ["collects", "throws", "threads", "switches"] {
        kubectl.apply(&pod(image, image, json!({}), json!({})).to_string()).ok();
    }
    let setting = |value: &str| json!({"wasm.skiff.internal/proposals": value});
    kubectl.apply(&pod("threads-on", "threads", setting("threads,wide-arithmetic"), json!({})).to_string()).ok();
    kubectl.apply(&pod("threads-misspelt", "threads", setting("thread"), json!({})).to_string()).ok();
    for name in ["collects", "throws", "threads-on"] {
        ends_with(kubectl, name, 22);
    }
    kubectl.until_waiting("threads-misspelt", "CreateContainerConfigError", "\"thread\" is not a proposal that can be switched on");
    let optional = [("threads", "threads"), ("switches", "stack-switching")];
    for (name, proposal) in optional {
        let annotation = format!("the annotation wasm.skiff.internal/proposals: \"{proposal}\" of its Pod");
        kubectl.until_waiting(name, "CreateContainerError", &format!("uses {proposal}, which is off by default; {annotation}"));
        // The message is followed: the same Pod runs.
        kubectl.ok(&format!("annotate pod {name} wasm.skiff.internal/proposals={proposal}"));
    }
    for (name, _) in optional {
        ends_with(kubectl, name, 22);
    }
}

/// The policy that docs/security.md has for it.
pub fn a_policy_forbids_them(kubectl: &Kubectl<'_>) {
    let page = std::fs::read_to_string(tests::cluster::project().join("docs/security.md")).expect("the page");
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let policy: Vec<_> = blocks.filter(|block| block.contains("name: stable-proposals")).collect();
    assert_eq!(policy.len(), 1, "{policy:?}");
    kubectl.apply(policy[0]).ok();
    let set = pod("forbidden", "threads", json!({"wasm.skiff.internal/proposals": "threads"}), json!({})).to_string();
    eventually("the policy holds", || {
        let ran = kubectl.with_input("create --dry-run=server -f -", &set);
        if ran.stderr.contains("WebAssembly proposals that are off by default are not allowed here") {
            Ok(())
        } else {
            Err(ran.to_string())
        }
    });
    kubectl.apply(&pod("allowed", "collects", json!({"example.com/other": "x"}), json!({})).to_string()).ok();
    ends_with(kubectl, "allowed", 22);
}
