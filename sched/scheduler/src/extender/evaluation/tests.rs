use serde_json::json;

use super::*;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// What an answer leaves of the nodes `a`, `b` and `c`, and the messages of the others.
fn outcome(node_cache_capable: bool, answer: &serde_json::Value) -> Result<(String, String), String> {
    let result = wire::decode(answer.to_string().as_bytes(), ExtenderFilterResult::new).map_err(|error| error.to_string())?;
    let (allowed, rejected) =
        filtered("http://x", node_cache_capable, &names(&["a", "b", "c"]), result).map_err(|error| error.to_string())?;
    let rejected: Vec<String> = rejected.into_iter().map(|one| format!("{}: {}", one.node, one.reason)).collect();
    Ok((allowed.join(" "), rejected.join(", ")))
}

#[test]
fn an_answer_leaves_the_nodes_that_it_names() {
    let whole = |names: &[&str]| json!({"metadata": {}, "items": names.iter().map(|name| json!({"metadata": {"name": name}, "spec": {}})).collect::<Vec<_>>()});
    let ok = |allowed: &str, rejected: &str| Ok((allowed.to_owned(), rejected.to_owned()));
    let unknown = Err("extender \"http://x\" claims a filtered node \"z\" which is not found in the input node list".to_owned());
    for (capable, answer, wanted) in [
        (true, json!({"NodeNames": ["c", "a"]}), ok("a c", "")),
        (true, json!({"nodenames": ["c", "a"], "failedNodes": {"b": "too far"}}), ok("a c", "b: too far")),
        (true, json!({"NodeNames": ["b"], "NODENAMES": ["a"]}), ok("b", "")),
        (true, json!({"NodeNames": null, "Nodes": whole(&["b"])}), ok("b", "")),
        (
            true,
            json!({"NodeNames": [], "FailedNodes": {"a": "x", "b": "y"}, "FailedAndUnresolvableNodes": {"b": "z"}}),
            ok("", "a: x, b: z"),
        ),
        (true, json!({"NodeNames": ["a"], "FailedNodes": {"a": "x", "unknown": "y"}}), ok("a", "")),
        (true, json!({}), ok("", "")),
        (true, json!(null), ok("", "")),
        (true, json!({"NodeNames": ["z"]}), unknown.clone()),
        (true, json!({"NodeNames": ["a"], "Error": "no"}), Err("no".to_owned())),
        (false, json!({"Nodes": whole(&["a", "b"])}), ok("a b", "")),
        (false, json!({"NodeNames": ["a"]}), ok("", "")),
        (false, json!({"nodes": whole(&["z"])}), unknown),
    ] {
        assert_eq!(outcome(capable, &answer), wanted, "{answer}");
    }
    for answer in [json!("text"), json!(["a"]), json!({"NodeNames": "a"}), json!({"NodeNames": [1]}), json!({"FailedNodes": ["a"]})] {
        assert!(outcome(true, &answer).is_err(), "{answer}");
    }
}

#[test]
fn the_messages_of_an_extender_are_bounded() {
    let long = "x".repeat(1 << 20);
    let (_, rejected) = outcome(true, &json!({"NodeNames": [], "FailedNodes": {"a": long}})).expect("an answer");
    assert_eq!(rejected.len(), "a: ".len() + 512);
    let error = outcome(true, &json!({"Error": long})).expect_err("an error");
    assert_eq!(error.len(), 512);
    let mut rejections = Rejections::default();
    let one = |number: usize| Rejected { node: format!("n{number}"), reason: format!("reason {number}").into() };
    rejections.add((0..1_000).map(one).collect());
    rejections.add(vec![one(3)]);
    let reasons: HashSet<_> = rejections.all.iter().map(|rejected| rejected.reason.clone()).collect();
    assert_eq!((rejections.all.len(), reasons.len()), (1_001, REASONS_MAX + 1), "the further ones are counted together");
}

#[test]
fn bodies_are_those_of_upstream() {
    let raw = |value: serde_json::Value| serde_json::value::to_raw_value(&value).expect("JSON");
    let (pod, node) = (raw(json!({"metadata": {"name": "p"}})), raw(json!({"metadata": {"name": "n"}})));
    let named = wire::encode(&ExtenderArgs { pod: &pod, nodes: None, node_names: Some(vec!["n"]) });
    assert_eq!(named, r#"{"Pod":{"metadata":{"name":"p"}},"Nodes":null,"NodeNames":["n"]}"#);
    let whole = wire::encode(&ExtenderArgs { pod: &pod, nodes: Some(NodeList::new(vec![&node])), node_names: None });
    let wanted = r#"{"Pod":{"metadata":{"name":"p"}},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"n"}}]},"NodeNames":null}"#;
    assert_eq!(whole, wanted);
    let binding = wire::encode(&wire::ExtenderBindingArgs { pod_name: "p", pod_namespace: "ns", pod_uid: "u", node: "n" });
    assert_eq!(binding, r#"{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"n"}"#);
}

#[test]
fn scores_are_read_as_go_does() {
    let read = |text: &str| {
        wire::host_priorities(text.as_bytes()).map(|list| list.into_iter().map(|one| (one.host, one.score)).collect::<Vec<_>>()).ok()
    };
    let pairs = |pairs: &[(&str, i64)]| Some(pairs.iter().map(|(host, score)| ((*host).to_owned(), *score)).collect::<Vec<_>>());
    assert_eq!(read(r#"[{"Host":"a","Score":10},{"host":"b","score":-3},{"Host":"c"}]"#), pairs(&[("a", 10), ("b", -3), ("c", 0)]));
    assert_eq!(read("null"), pairs(&[]));
    for garbage in ["", "{}", "[1]", r#"[{"Host":"a","Score":1.5}]"#, r#"[{"Host":"a","Score":1e99}]"#, "[[[[", "[{}] x"] {
        assert_eq!(read(garbage), None, "{garbage}");
    }
}
