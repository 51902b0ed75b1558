//! Warnings about valid Pod specs (`pkg/api/pod/warnings.go`).

use std::collections::{BTreeMap, HashSet};

use crate::at::At;
use crate::quantity;

/// Deprecated node labels and their replacements.
const OLD_LABELS: [(&str, &str); 5] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    ("failure-domain.beta.kubernetes.io/region", "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
];
const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    ("scheduler.alpha.kubernetes.io/critical-pod", "non-functional in v1.16+; use the \"priorityClassName\" field instead"),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];
const OLD_VOLUMES: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Warnings about an object with `metadata` and `spec`: a Pod or a template.
pub fn for_pod(owner: &At<'_>) -> Vec<String> {
    let spec = owner.get("spec");
    let mut warnings = Vec::new();
    labels(&spec, &mut warnings);
    for (name, words) in OLD_ANNOTATIONS {
        let annotation = owner.find("metadata.annotations").key(name);
        if annotation.exists() {
            warnings.push(format!("{}: {words}", annotation.path));
        }
    }
    for volume in spec.get("volumes").items() {
        for (kind, words) in OLD_VOLUMES.iter().filter(|(kind, _)| volume.has(kind)) {
            warnings.push(format!("{}: {words}", volume.get(kind).path));
        }
    }
    duplicates(&spec, &mut warnings);
    for name in ["memory", "ephemeral-storage"] {
        fractional(&spec.get("overhead").key(name), &mut warnings);
    }
    let containers: Vec<At<'_>> =
        ["initContainers", "containers", "ephemeralContainers"].iter().flat_map(|list| spec.get(list).items()).collect();
    for container in &containers {
        self::container(container, &mut warnings);
    }
    ports(&containers, &mut warnings);
    let grace = spec.get("terminationGracePeriodSeconds");
    if grace.int() < 0 {
        warnings.push(format!("{}: must be >= 0; negative values are invalid and will be treated as 1", grace.path));
    }
    warnings
}

fn old(name: &str) -> Option<&'static str> {
    OLD_LABELS.iter().find(|(label, _)| *label == name).map(|(_, words)| *words)
}

/// Warnings about a node selector with deprecated labels.
pub fn old_labels(selector: &At<'_>) -> Vec<String> {
    selector.entries().filter_map(|(name, value)| Some(format!("{}: {}", value.path, old(name)?))).collect()
}

fn labels(spec: &At<'_>, warnings: &mut Vec<String>) {
    warnings.extend(old_labels(&spec.get("nodeSelector")));
    let affinity = spec.find("affinity.nodeAffinity");
    let required = affinity.find("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    let preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution");
    for term in required.items().chain(preferred.items().map(|term| term.get("preference"))) {
        for expression in term.get("matchExpressions").items() {
            let key = expression.get("key");
            if let Some(words) = old(key.text()) {
                warnings.push(format!("{}: {} is {words}", key.path, key.text()));
            }
        }
    }
    for constraint in spec.get("topologySpreadConstraints").items() {
        let key = constraint.get("topologyKey");
        if let Some(words) = old(key.text()) {
            warnings.push(format!("{}: {} is {words}", key.path, key.text()));
        }
        let selector = constraint.get("labelSelector");
        if !selector.exists() {
            warnings.push(format!("{}: a null labelSelector results in matching no pod", selector.path));
        }
    }
}

fn duplicates(spec: &At<'_>, warnings: &mut Vec<String>) {
    for (list, field) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let mut seen = HashSet::new();
        for item in spec.get(list).items() {
            let value = item.get(field);
            if !seen.insert(value.text()) {
                warnings.push(format!("{}: duplicate {field} {:?}", value.path, value.text()));
            }
        }
    }
    for secret in spec.get("imagePullSecrets").items() {
        if secret.get("name").text().is_empty() {
            warnings.push(format!("{}: invalid empty name \"\"", secret.get("name").path));
        }
    }
}

fn fractional(amount: &At<'_>, warnings: &mut Vec<String>) {
    if quantity::parse(amount.text()).is_ok_and(|parsed| !parsed.is_whole()) {
        warnings.push(format!("{}: fractional byte value {:?} is invalid, must be an integer", amount.path, amount.text()));
    }
}

fn container(container: &At<'_>, warnings: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        for list in ["limits", "requests"] {
            fractional(&container.get("resources").get(list).key(name), warnings);
        }
    }
    let mut seen = HashSet::new();
    for variable in container.get("env").items() {
        let name = variable.get("name").text();
        if seen.insert(name) {
            continue;
        }
        let reference = format!("$({name})");
        let value = variable.get("value").text();
        let extends = value.contains(&reference) && value != reference && !variable.get("valueFrom").exists();
        if !extends {
            warnings.push(format!("{}: hides previous definition of {name:?}, which may be dropped when using apply", variable.path));
        }
    }
}

fn ports(containers: &[At<'_>], warnings: &mut Vec<String>) {
    let mut by_port: BTreeMap<(i64, &str), Vec<At<'_>>> = BTreeMap::new();
    for port in containers.iter().flat_map(|container| container.get("ports").items()) {
        let others = by_port.entry((port.get("containerPort").int(), port.get("protocol").text())).or_default();
        let host = |at: &At<'_>| (at.get("hostIP").text().to_owned(), at.get("hostPort").int());
        for other in others.iter() {
            let (this, that) = (host(&port), host(other));
            if this == that {
                warnings.push(format!("{}: duplicate port definition with {}", port.path, other.path));
            } else if this.1 == 0 || that.1 == 0 || (this.1 == that.1 && (this.0.is_empty() || that.0.is_empty())) {
                warnings.push(format!("{}: overlapping port definition with {}", port.path, other.path));
            }
        }
        others.push(port);
    }
}
