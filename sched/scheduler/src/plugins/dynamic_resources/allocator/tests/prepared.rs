//! Devices that are prepared before the Pod is bound, perhaps for its node alone.

use super::*;

fn attachable(name: &str, more: Value) -> Value {
    let mut device = json!({"name": name, "bindingConditions": ["attached"], "bindingFailureConditions": ["broken", "lost"]});
    device.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    device
}

#[test]
fn an_allocation_has_the_conditions_and_perhaps_the_node() {
    let allocation = |device: Value| {
        let dra = manager(&[slice("s", json!({"allNodes": true}), json!([device]))], &[]);
        let mut all = run(&dra, &[claim("c", json!([exactly("r", json!({}))]))]).expect("no error").expect("an allocation");
        json!(all.remove(0))
    };
    let of_any_node = allocation(attachable("a", json!({})));
    let result = &of_any_node["devices"]["results"][0];
    assert_eq!((&result["bindingConditions"], &result["bindingFailureConditions"]), (&json!(["attached"]), &json!(["broken", "lost"])));
    assert_eq!(of_any_node["nodeSelector"], Value::Null);
    let of_node = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]});
    assert_eq!(allocation(attachable("a", json!({"bindsToNode": true})))["nodeSelector"], of_node);
    let plain = allocation(json!({"name": "a"}));
    let result = plain["devices"]["results"][0].as_object().expect("a map");
    assert!(!result.contains_key("bindingConditions") && !result.contains_key("bindingFailureConditions"), "{plain}");
}

#[test]
fn devices_that_need_no_preparation_are_preferred() {
    let one = [claim("c", json!([exactly("r", json!({}))]))];
    let (first, last) = (slice("1", json!({"nodeName": "n"}), json!([attachable("a", json!({}))])), devices_of("n", &["b"]));
    assert_eq!(allocate(&manager(&[first.clone(), last], &[]), &one), "r=b", "of a later pool");
    let mixed = slice("2", json!({"nodeName": "n"}), json!([attachable("c", json!({})), {"name": "d"}]));
    assert_eq!(allocate(&manager(&[first, mixed], &[]), &one), "r=a", "pools are preferred, not devices");
}
