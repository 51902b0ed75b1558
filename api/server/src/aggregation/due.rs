//! Which aggregated servers must be checked now: those whose inputs changed since the last check, those that did not
//! answer a client, and every server from time to time. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api_model::view::View;
use serde_json::Value;
use tokio::time::Instant;

use super::{Remote, available};
use crate::condition::Condition;
use api_upstream::resolve;

/// How often every server is checked (upstream's resync), and how soon a server that failed.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(30);
pub(super) const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The stored data that a check of a server depends on. EndpointSlices of other Services are not included, and the
/// condition that the last check wrote is not included either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProbeInput {
    /// The UID of the APIService.
    uid: String,
    spec: Arc<Value>,
    /// Why no request can be sent to the server.
    pub(super) obstacle: Option<Condition>,
    endpoints: Option<Vec<(String, u16)>>,
}

impl ProbeInput {
    pub(super) fn of(remote: &Remote, view: &dyn View) -> Self {
        Self {
            uid: remote.uid.clone(),
            spec: Arc::clone(&remote.spec),
            obstacle: available::obstacle(remote, view),
            endpoints: resolve::endpoints(view, &remote.host(), remote.port),
        }
    }
}

/// The last check of each server, by the name of its APIService.
#[derive(Debug, Default)]
pub(super) struct Looks(HashMap<String, Look>);

#[derive(Debug)]
struct Look {
    input: ProbeInput,
    is_well: bool,
    again_at: Instant,
    /// When the failure of a client's request last caused a check.
    doubted_at: Option<Instant>,
}

impl Looks {
    /// Whether a server must be checked.
    pub(super) fn is_due(&self, name: &str, input: &ProbeInput, now: Instant) -> bool {
        self.0.get(name).is_none_or(|last| last.input != *input || last.again_at <= now)
    }

    /// Records a check. If `is_well` is false, the next check comes soon.
    pub(super) fn looked(&mut self, name: &str, input: ProbeInput, is_well: bool, now: Instant) {
        let again_at = now + if is_well { ASK_EVERY } else { ASK_AGAIN_AFTER };
        let doubted_at = self.0.get(name).and_then(|last| last.doubted_at);
        self.0.insert(name.to_owned(), Look { input, is_well, again_at, doubted_at });
    }

    /// A client's request got no answer: the server must be checked if the last check succeeded. The cause may be the
    /// request itself, so this counts only once in each `ASK_EVERY`.
    pub(super) fn doubt(&mut self, name: &str, now: Instant) {
        let Some(last) = self.0.get_mut(name) else { return };
        if last.is_well && last.doubted_at.is_none_or(|at| now >= at + ASK_EVERY) {
            (last.again_at, last.doubted_at) = (now, Some(now));
        }
    }

    /// Removes the servers for which `is_there` returns false.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| is_there(name));
    }

    /// When the next check is due, if nothing happens until then.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|look| look.again_at).min()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use api_upstream::fixtures::FixedView;

    /// `registered` has the UID and the priority, each of which the test varies.
    fn remote(registered: (&str, u64)) -> Remote {
        let (uid, priority) = registered;
        let object = json!({"metadata": {"name": "v1.x.y", "uid": uid, "resourceVersion": "7"}, "spec": {"group": "x.y", "version": "v1",
            "versionPriority": priority, "service": {"namespace": "n", "name": "s", "port": 443}}});
        Remote::of(&object).expect("remote")
    }

    fn service() -> Arc<Value> {
        Arc::new(json!({"kind": "Service", "metadata": {"name": "s", "namespace": "n"}, "spec": {"ports": [{"port": 443}]}}))
    }

    fn slice(service: &str, namespace: &str, addresses: &[&str]) -> Arc<Value> {
        let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
        Arc::new(json!({"kind": "EndpointSlice", "ports": [{"port": 8443}], "endpoints": endpoints,
            "metadata": {"name": format!("{service}-1"), "namespace": namespace, "labels": {"kubernetes.io/service-name": service}}}))
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_due_when_what_it_stands_on_changes() {
        let input = |registered, objects: &[Arc<Value>]| ProbeInput::of(&remote(registered), &FixedView(objects.to_vec()));
        let (now, mut looks) = (Instant::now(), Looks::default());
        let first = input(("a", 1), &[service(), slice("s", "n", &["10.0.0.1"])]);
        assert!(looks.is_due("v1.x.y", &first, now), "it was never looked at");
        looks.looked("v1.x.y", first, true, now);
        for (registered, objects, wanted) in [
            (("a", 1), vec![service(), slice("s", "n", &["10.0.0.1"])], false),
            (("a", 1), vec![service(), slice("s", "n", &["10.0.0.1"]), slice("other", "n", &["10.0.0.9"])], false),
            (("a", 1), vec![service(), slice("s", "n", &["10.0.0.1"]), slice("s", "m", &["10.0.0.9"])], false),
            (("a", 1), vec![service(), slice("s", "n", &["10.0.0.2"])], true),
            (("a", 1), vec![service(), slice("s", "n", &[])], true),
            (("a", 1), vec![service()], true),
            (("a", 1), vec![slice("s", "n", &["10.0.0.1"])], true),
            (("a", 2), vec![service(), slice("s", "n", &["10.0.0.1"])], true),
            (("b", 1), vec![service(), slice("s", "n", &["10.0.0.1"])], true),
        ] {
            assert_eq!(looks.is_due("v1.x.y", &input(registered, &objects), now), wanted, "{registered:?} {objects:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_due_again_sooner_when_it_did_not_answer() {
        let input = ProbeInput::of(&remote(("a", 1)), &FixedView(vec![]));
        let (now, mut looks) = (Instant::now(), Looks::default());
        looks.looked("well", input.clone(), true, now);
        looks.looked("ill", input.clone(), false, now);
        assert_eq!(looks.next(), Some(now + ASK_AGAIN_AFTER));
        let due = |looks: &Looks, name: &str, later: Duration| looks.is_due(name, &input, now + later);
        assert!(due(&looks, "ill", ASK_AGAIN_AFTER) && !due(&looks, "well", ASK_AGAIN_AFTER));
        assert!(due(&looks, "well", ASK_EVERY));
        looks.retain(|name| name == "well");
        assert_eq!(looks.next(), Some(now + ASK_EVERY));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_well_is_doubted_once_in_a_while() {
        let input = ProbeInput::of(&remote(("a", 1)), &FixedView(vec![]));
        let (start, mut looks) = (Instant::now(), Looks::default());
        for name in ["well", "ill"] {
            looks.looked(name, input.clone(), name == "well", start);
        }
        let mut doubted = |name: &str, is_well: bool, seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            looks.doubt(name, now);
            let is_due = looks.is_due(name, &input, now);
            if is_due {
                looks.looked(name, input.clone(), is_well, now);
            }
            is_due
        };
        assert!(doubted("well", true, 1), "somebody got no answer");
        assert!(!doubted("well", true, 2) && !doubted("well", true, 30), "it was well");
        assert!(doubted("well", true, 31) && !doubted("well", true, 32));
        assert!(!doubted("ill", false, 1), "it is looked at soon anyway");
        assert!(doubted("ill", true, 5) && doubted("ill", true, 6), "and is well now");
    }
}
