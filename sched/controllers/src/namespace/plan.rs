//! The conditions of a namespace that is being emptied, in upstream's words.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, NamespaceStatus};

use super::content::Outcome;
use crate::meta;

/// The type, and the reason and message while there is no problem.
const CONDITIONS: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    ("NamespaceDeletionContentFailure", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// The status of a namespace after one attempt to empty it.
pub fn status(namespace: &Namespace, outcome: &Outcome, now: Timestamp) -> NamespaceStatus {
    let before = namespace.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut conditions: Vec<NamespaceCondition> = before.clone();
    for (kind, reason, message) in CONDITIONS {
        let (status, reason, message) = match complaint(kind, outcome) {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", reason, message.to_owned()),
        };
        let old = before.iter().find(|condition| condition.type_ == kind);
        let transition = old.filter(|old| old.status == status).and_then(|old| old.last_transition_time.clone());
        let condition = NamespaceCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: transition.or_else(|| Some(meta::whole_seconds(now))),
        };
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            Some(old) => *old = condition,
            None => conditions.push(condition),
        }
    }
    NamespaceStatus { phase: Some("Terminating".to_owned()), conditions: Some(conditions) }
}

fn complaint(kind: &str, outcome: &Outcome) -> Option<(&'static str, String)> {
    match kind {
        "NamespaceDeletionDiscoveryFailure" => {
            let problem = outcome.discovery.as_ref()?;
            Some(("DiscoveryFailed", format!("Discovery failed for some groups, 1 failing: {problem}")))
        }
        "NamespaceDeletionContentFailure" if !outcome.failures.is_empty() => {
            let (count, all) = (outcome.failures.len(), outcome.failures.join(", "));
            Some(("ContentDeletionFailed", format!("Failed to delete all resource types, {count} remaining: {all}")))
        }
        "NamespaceContentRemaining" if !outcome.remaining.is_empty() => {
            Some(("SomeResourcesRemain", format!("Some resources are remaining: {}", outcome.remaining_text())))
        }
        "NamespaceFinalizersRemaining" if !outcome.finalizers.is_empty() => {
            Some(("SomeFinalizersRemain", format!("Some content in the namespace has finalizers remaining: {}", outcome.finalizers_text())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn lines(status: &NamespaceStatus) -> String {
        let line = |c: &NamespaceCondition| {
            let (reason, message) = (c.reason.as_deref().unwrap_or_default(), c.message.as_deref().unwrap_or_default());
            format!(
                "{} {} {reason}: {message} ({})",
                c.type_,
                c.status,
                c.last_transition_time.as_ref().map(|t| t.0.to_string()).unwrap_or_default()
            )
        };
        status.conditions.iter().flatten().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn conditions_say_what_remains() {
        let outcome = Outcome {
            remaining: BTreeMap::from([("pods.".to_owned(), 1), ("widgets.example.com".to_owned(), 2)]),
            finalizers: BTreeMap::from([("example.com/hold".to_owned(), 2)]),
            ..Outcome::default()
        };
        let now = "2024-01-01T00:00:00Z".parse().expect("a time");
        let first = status(&Namespace::default(), &outcome, now);
        insta::assert_snapshot!(lines(&first), @r#"
        NamespaceDeletionDiscoveryFailure False ResourcesDiscovered: All resources successfully discovered (2024-01-01T00:00:00Z)
        NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions: All legacy kube types successfully parsed (2024-01-01T00:00:00Z)
        NamespaceDeletionContentFailure False ContentDeleted: All content successfully deleted, may be waiting on finalization (2024-01-01T00:00:00Z)
        NamespaceContentRemaining True SomeResourcesRemain: Some resources are remaining: pods. has 1 resource instances, widgets.example.com has 2 resource instances (2024-01-01T00:00:00Z)
        NamespaceFinalizersRemaining True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances (2024-01-01T00:00:00Z)
        "#);
        let later = now.checked_add(jiff::SignedDuration::from_secs(5)).expect("in range");
        let namespace = Namespace { status: Some(first.clone()), ..Namespace::default() };
        assert_eq!(status(&namespace, &outcome, later), first, "what stays the same keeps its time");
        let failing = Outcome { discovery: Some("x".to_owned()), failures: vec!["y".to_owned()], ..Outcome::default() };
        insta::assert_snapshot!(lines(&status(&namespace, &failing, later)), @r#"
        NamespaceDeletionDiscoveryFailure True DiscoveryFailed: Discovery failed for some groups, 1 failing: x (2024-01-01T00:00:05Z)
        NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions: All legacy kube types successfully parsed (2024-01-01T00:00:00Z)
        NamespaceDeletionContentFailure True ContentDeletionFailed: Failed to delete all resource types, 1 remaining: y (2024-01-01T00:00:05Z)
        NamespaceContentRemaining False ContentRemoved: All content successfully removed (2024-01-01T00:00:05Z)
        NamespaceFinalizersRemaining False ContentHasNoFinalizers: All content-preserving finalizers finished (2024-01-01T00:00:05Z)
        "#);
    }
}
