use serde_json::{Value, json};

use super::*;

/// What a request with these amounts takes of one capacity `c` of 10 with this policy: the amount, `-` when the device does not have it.
fn of_ten(policy: Value, requested: Option<&str>) -> String {
    let mut capacity = json!({"value": "10"});
    if !policy.is_null() {
        capacity["requestPolicy"] = policy;
    }
    let requests = requested.map(|amount| json!({"c": amount})).unwrap_or(json!({}));
    taken(true, json!({"c": capacity}), requests)
}

/// What a request takes of a device of the driver `d` with these capacities.
fn taken(is_shared: bool, capacities: Value, requests: Value) -> String {
    let slice = json!({"metadata": {"name": "s"}, "spec": {
        "driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "a", "capacity": capacities}],
    }});
    let slice = serde_json::from_value(slice).expect("a slice");
    let candidate = Candidate::of_first_device(slice, is_shared);
    let wanted: CapacityRequirements = serde_json::from_value(json!({"requests": requests})).expect("requirements");
    let result = super::requests(Some(&wanted)).and_then(|requests| demand(&candidate, &requests));
    match result {
        Ok(Some(demand)) => {
            let share = |share: &Share| format!("{}={}", share.capacity, share.quantity.0);
            demand.shares.iter().map(share).collect::<Vec<_>>().join(" ")
        }
        Ok(None) => "-".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn amounts_are_rounded_up_as_the_policy_says() {
    let values = json!({"default": "2", "validValues": ["1", "2", "8"]});
    let range = json!({"default": "3", "validRange": {"min": "2", "max": "9"}});
    let steps = json!({"default": "2", "validRange": {"min": "2", "max": "8", "step": "3"}});
    let fractions = json!({"default": "500m", "validRange": {"min": "500m", "step": "250m"}});
    for (name, policy, requested, expected) in [
        ("without a policy, what is requested", Value::Null, Some("3"), "c=3"),
        ("without a policy and a request, all", Value::Null, None, "c=10"),
        ("more than there is", Value::Null, Some("11"), "-"),
        ("nothing", Value::Null, Some("0"), "c=0"),
        ("the default", values.clone(), None, "c=2"),
        ("a valid value", values.clone(), Some("1"), "c=1"),
        ("the next valid value", values.clone(), Some("2500m"), "c=8"),
        ("more than the last valid value", values.clone(), Some("9"), "-"),
        ("values without a default", json!({"validValues": ["10"]}), None, "c=10"),
        ("all of it is not a valid value", json!({"validValues": ["4"]}), None, "-"),
        ("the default of a range", range.clone(), None, "c=3"),
        ("less than the minimum", range.clone(), Some("1"), "c=2"),
        ("between", range.clone(), Some("2500m"), "c=2500m"),
        ("more than the maximum", range.clone(), Some("9001m"), "-"),
        ("the minimum of a range with steps", steps.clone(), Some("2"), "c=2"),
        ("the next step", steps.clone(), Some("2001m"), "c=5"),
        ("the last step", steps.clone(), Some("5.5"), "c=8"),
        ("a step after the maximum", steps.clone(), Some("8001m"), "-"),
        ("steps are fractions", fractions.clone(), Some("0.6"), "c=750m"),
        ("a step is whole", fractions, Some("0.9"), "c=1"),
        ("a default alone", json!({"default": "4"}), None, "c=4"),
        ("a request that is not the default", json!({"default": "4"}), Some("1"), "c=1"),
        ("a step of nothing", json!({"default": "1", "validRange": {"min": "1", "step": "0"}}), Some("2"), "-"),
        ("a negative default", json!({"default": "-1"}), None, ", device d/p/a: capacity \"d/c\": capacity value is negative"),
        ("a negative request", Value::Null, Some("-1"), ", device d/p/a: capacity \"d/c\": capacity value is negative"),
        ("a negative request that is rounded up", range, Some("-1"), "c=2"),
    ] {
        assert_eq!(of_ten(policy, requested), expected, "{name}");
    }
    let memory = json!({"memory": {"value": "40Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "512Mi"}}}});
    assert_eq!(taken(true, memory.clone(), json!({"memory": "2100Mi"})), "memory=2560Mi", "written like the step");
    assert_eq!(taken(true, memory, json!({"memory": "4000000000"})), "memory=4Gi");
    let huge = json!({"c": {"value": "9E", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "9E"}}}});
    assert_eq!(taken(true, huge, json!({"c": "9E"})), "-", "the next step is past everything");
}

/// The first name of each pair comes before the other in the alphabet.
#[test]
fn a_name_with_the_domain_of_the_driver_goes_before_one_without() {
    for (large, small) in [("d/z", "z"), ("d/c", "c")] {
        let capacities = json!({large: {"value": "20"}, small: {"value": "10"}});
        assert_eq!(taken(true, capacities, json!({small: "15"})), format!("{large}=15"));
    }
}

#[test]
fn a_rounded_amount_is_written_like_the_step() {
    let units = |units: i128| units * 1_000_000_000;
    for (like, nano, text) in [
        ("1Mi", units(1 << 30), "1Gi"),
        ("1", units(1 << 30), "1073741824"),
        ("500m", units(3) / 2, "1500m"),
        ("1E", units(2), "2"),
        ("1e3", units(2000), "2e3"),
        ("1Ki", units(3) / 2, "1500m"),
    ] {
        assert_eq!(written_like(&Quantity(like.to_owned()), nano).0, text, "{like}");
    }
}

#[test]
fn capacities_are_named_with_and_without_the_drivers_domain() {
    let both = || json!({"c": {"value": "4"}, "other/c": {"value": "6"}});
    for (name, capacities, requests, expected) in [
        ("without a domain", both(), json!({"c": "1"}), "c=1 other/c=6"),
        ("with the driver's domain", both(), json!({"d/c": "1"}), "c=1 other/c=6"),
        ("of another domain", both(), json!({"other/c": "1"}), "c=4 other/c=1"),
        ("unknown", both(), json!({"x": "1"}), "-"),
        ("of an unknown domain", both(), json!({"x/c": "1"}), "-"),
        ("published with the domain", json!({"d/c": {"value": "4"}}), json!({"c": "1"}), "d/c=1"),
        ("published twice", json!({"c": {"value": "4"}, "d/c": {"value": "5"}}), json!({"c": "5"}), "d/c=5"),
        ("requested twice", both(), json!({"c": "1", "d/c": "2"}), r#": capacity "d/c" requested both as "c" and as "d/c""#),
        ("no capacities", json!({}), json!({}), ""),
    ] {
        assert_eq!(taken(true, capacities, requests), expected, "{name}");
    }
}

#[test]
fn a_device_that_is_allocated_as_a_whole_has_what_is_requested() {
    let capacities = || json!({"c": {"value": "4"}});
    for (requests, expected) in [(json!({"c": "4"}), ""), (json!({"c": "5"}), "-"), (json!({"x": "1"}), "-"), (json!({}), "")] {
        assert_eq!(taken(false, capacities(), requests.clone()), expected, "{requests}");
    }
}
