//! Which Services' rules follow from which events.

use kube::runtime::watcher::Event;

use super::*;
use crate::fixtures::{config, http, service, web};

fn verdicts(state: &mut State) -> Vec<String> {
    state
        .rules()
        .elements
        .into_iter()
        .filter(|(_, verdict)| !verdict.is_empty())
        .map(|((_, key), verdict)| format!("{key} {}", verdict.split('-').next().unwrap_or_default()))
        .collect()
}

#[test]
fn rules_follow_services_and_slices_in_any_order() {
    let mut state = State::new(config());
    let ready: &[_] = &[("10.244.1.2", "here", "ready")];
    state.slice(Event::Init);
    state.slice(Event::InitApply(http("web", ready)));
    state.slice(Event::InitDone);
    assert!(!state.is_complete(), "one list alone would refuse what works");
    state.service(Event::Init);
    state.service(Event::InitDone);
    assert!(state.is_complete());
    assert_eq!(verdicts(&mut state), [] as [&str; 0]);

    state.service(Event::Apply(service("web", web("10.96.0.1"))));
    assert_eq!(verdicts(&mut state), ["10.96.0.1 . tcp . 80 goto service"]);
    assert!(!state.is_dirty());
    state.service(Event::Apply(service("web", web("10.96.0.1"))));
    assert!(!state.is_dirty(), "nothing that matters changed");

    state.slice(Event::Apply(http("web", &[])));
    assert_eq!(verdicts(&mut state), ["10.96.0.1 . tcp . 80 goto refuse"]);
    state.slice(Event::Apply(http("web", ready)));
    assert_eq!(verdicts(&mut state), ["10.96.0.1 . tcp . 80 goto service"]);

    // The same slice, of another Service from now on.
    let mut moved = http("api", ready);
    moved.metadata.name = Some("web-abcde".to_owned());
    state.slice(Event::Apply(moved.clone()));
    state.service(Event::Apply(service("api", web("10.96.0.2"))));
    assert_eq!(verdicts(&mut state), ["10.96.0.2 . tcp . 80 goto service", "10.96.0.1 . tcp . 80 goto refuse"]);

    // A new list in which one Service is missing.
    state.service(Event::Init);
    state.service(Event::InitApply(service("api", web("10.96.0.2"))));
    assert_eq!(verdicts(&mut state).len(), 2, "until the list is complete, what was known holds");
    state.service(Event::InitDone);
    assert_eq!(verdicts(&mut state), ["10.96.0.2 . tcp . 80 goto service"]);
    state.slice(Event::Delete(moved));
    assert_eq!(verdicts(&mut state), ["10.96.0.2 . tcp . 80 goto refuse"]);
    state.service(Event::Delete(service("api", web("10.96.0.2"))));
    assert_eq!(verdicts(&mut state), [] as [&str; 0]);
}

#[test]
fn two_services_that_claim_one_address_do_not_break_the_rest() {
    let mut state = State::new(config());
    for name in ["b", "a"] {
        state.slice(Event::Apply(http(name, &[("10.244.1.2", "here", "ready")])));
        let mut spec = web(if name == "a" { "10.96.0.1" } else { "10.96.0.2" });
        spec["externalIPs"] = serde_json::json!(["203.0.113.7"]);
        state.service(Event::Apply(service(name, spec)));
    }
    let rules = state.rules();
    let claimed = rules.elements.iter().find(|((_, key), _)| key.starts_with("203.0.113.7")).map(|(_, verdict)| verdict.clone());
    assert!(claimed.is_some_and(|verdict| verdict.contains("default/a/")));
}
