//! Decides which UDP flows to delete. UDP has no end of connection: the kernel sends the datagrams of a client that keeps its
//! port where the first one went, also after the rules changed.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;

use crate::rules::{Front, RuleSet};

/// Flows to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stale {
    pub(crate) front: Front,
    /// Only flows to this endpoint; `None` is all, translated or not.
    pub(crate) endpoint: Option<SocketAddrV4>,
}

/// The stale flows after a change of rules: flows to endpoints that are gone or serve at another port, and, where there was no
/// endpoint before, flows that passed untranslated.
pub(crate) fn stale(old: &RuleSet, new: &RuleSet) -> Vec<Stale> {
    let none = BTreeSet::new();
    let mut stale = Vec::new();
    for (front, before) in &old.flows {
        let now = new.flows.get(front).unwrap_or(&none);
        stale.extend(before.difference(now).map(|endpoint| Stale { front: *front, endpoint: Some(*endpoint) }));
    }
    for (front, now) in &new.flows {
        if !now.is_empty() && old.flows.get(front).is_none_or(BTreeSet::is_empty) {
            stale.push(Stale { front: *front, endpoint: None });
        }
    }
    stale
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn rules(flows: &[(u16, &[(u8, u16)])]) -> RuleSet {
        let flows = flows.iter().map(|(port, ends)| {
            let front = Front { ip: Some(Ipv4Addr::new(10, 96, 0, 5)), port: *port };
            (front, ends.iter().map(|(last, port)| SocketAddrV4::new(Ipv4Addr::new(10, 244, 0, *last), *port)).collect())
        });
        RuleSet { flows: flows.collect(), ..RuleSet::default() }
    }

    #[test]
    fn forgets_what_leads_to_endpoints_that_are_gone() {
        let stale_flows = |old: &RuleSet, new: &RuleSet| -> Vec<String> {
            let one = |s: Stale| format!("{} {}", s.front.port, s.endpoint.map_or("*".to_owned(), |endpoint| endpoint.to_string()));
            stale(old, new).into_iter().map(one).collect()
        };
        let none = [] as [String; 0];
        assert_eq!(stale_flows(&rules(&[(53, &[(2, 53), (3, 53)])]), &rules(&[(53, &[(3, 53), (4, 53)])])), ["53 10.244.0.2:53"]);
        assert_eq!(
            stale_flows(&rules(&[(53, &[(2, 53)])]), &rules(&[(53, &[(2, 5353)])])),
            ["53 10.244.0.2:53"],
            "the target port changed"
        );
        assert_eq!(stale_flows(&rules(&[(53, &[(2, 53)])]), &rules(&[])), ["53 10.244.0.2:53"]);
        assert_eq!(stale_flows(&rules(&[(53, &[])]), &rules(&[(53, &[(2, 53)])])), ["53 *"]);
        assert_eq!(stale_flows(&rules(&[]), &rules(&[(53, &[(2, 53)])])), ["53 *"]);
        assert_eq!(stale_flows(&rules(&[(53, &[(2, 53)])]), &rules(&[(53, &[(2, 53)])])), none);
    }
}
