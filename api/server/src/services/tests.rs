use super::claims::carry_over;
use super::taken::Pool;
use super::*;

fn pool(text: &str) -> Pool {
    Pool::addresses(text.parse().expect("a range"))
}

#[test]
fn every_usable_address_is_handed_out_and_no_other() {
    let pool = pool("10.0.0.0/29");
    let mut taken = std::collections::BTreeSet::new();
    while let Some(address) = pool.free(|number| taken.contains(&number)) {
        taken.insert(address);
    }
    let addresses: Vec<String> = taken.into_iter().map(|number| Ipv4Addr::from(number).to_string()).collect();
    assert_eq!(addresses, ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
}

#[test]
fn the_low_end_is_left_to_those_who_ask_for_it() {
    let pool = pool("10.96.0.0/12");
    for _ in 0..200 {
        let address = Ipv4Addr::from(pool.free(|_| false).expect("free"));
        assert!(address >= Ipv4Addr::new(10, 96, 1, 0), "{address}");
    }
}

#[test]
fn a_changed_service_keeps_what_it_was_given() {
    let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5"],
        "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30_080}, {"port": 81, "protocol": "TCP", "nodePort": 30_081}]}});
    let mut new = json!({"spec": {"type": "NodePort", "ports": [{"port": 81, "protocol": "TCP"}, {"port": 82, "protocol": "TCP"}]}});
    carry_over(&mut new, &old);
    assert_eq!(new["spec"]["clusterIP"], "10.96.0.5");
    assert_eq!(new["spec"]["clusterIPs"], json!(["10.96.0.5"]));
    assert_eq!(new["spec"]["ports"], json!([{"port": 81, "protocol": "TCP", "nodePort": 30_081}, {"port": 82, "protocol": "TCP"}]));
}

#[test]
fn a_service_of_another_type_loses_what_that_type_does_not_have() {
    let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5"], "ports": [{"port": 80, "nodePort": 30_080}]}});
    let mut plain = old.clone();
    plain["spec"]["type"] = "ClusterIP".into();
    carry_over(&mut plain, &old);
    assert_eq!(plain["spec"]["ports"], json!([{"port": 80}]));
    assert_eq!(plain["spec"]["clusterIP"], "10.96.0.5");
    let mut external = old.clone();
    external["spec"]["type"] = "ExternalName".into();
    carry_over(&mut external, &old);
    assert_eq!(external["spec"], json!({"type": "ExternalName", "ports": [{"port": 80}]}));
}
