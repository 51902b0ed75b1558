use proptest::prelude::*;

use super::*;

const TEXT: &str = "# HELP node_cpu_usage_seconds_total x\n\
    node_cpu_usage_seconds_total 12.5 300000\nnode_memory_working_set_bytes 1073741824 300001\n\
    container_start_time_seconds{container=\"a\",namespace=\"ns\",pod=\"web\"} 100.25\n\
    container_cpu_usage_seconds_total{container=\"a\",namespace=\"ns\",pod=\"web\"} 1.5 200000\n\
    container_memory_working_set_bytes{container=\"a\",namespace=\"ns\",pod=\"web\"} 2048 200000\n\
    pod_memory_working_set_bytes{namespace=\"ns\",pod=\"web\"} 9999 200000\n";

fn bound(pods: &[(&str, &str)]) -> Answer {
    Answer::new("n1".into(), pods.iter().map(|(namespace, name)| (Arc::from(*namespace), Arc::from(*name))), 7_000)
}

fn read(mut answer: Answer, text: &str) -> Result<NodeReading, AnswerError> {
    answer.read(text.as_bytes())?;
    answer.end()
}

#[test]
fn a_nodes_answer_has_its_own_use_and_that_of_its_pods() {
    let reading = read(bound(&[("ns", "web"), ("ns", "silent")]), TEXT).expect("reads");
    let own = Point { started_ms: 0, read_ms: 300_001, cpu_ns: 12_500_000_000, memory_bytes: 1 << 30 };
    let point = Point { started_ms: 100_250, read_ms: 200_000, cpu_ns: 1_500_000_000, memory_bytes: 2_048 };
    let pod = PodReading { namespace: "ns".into(), name: "web".into(), containers: vec![("a".into(), point)] };
    assert_eq!(reading, NodeReading { node: "n1".into(), own: Some(own), pods: vec![pod] });
}

#[test]
fn a_node_speaks_only_of_pods_that_are_bound_to_it() {
    let reading = read(bound(&[("other", "web"), ("ns", "we")]), TEXT).expect("reads");
    assert!(reading.own.is_some());
    assert_eq!(reading.pods, []);
}

#[test]
fn a_pod_counts_only_as_a_whole() {
    let half = "container_cpu_usage_seconds_total{container=\"b\",namespace=\"ns\",pod=\"web\"} 1 200000\n";
    let none = "container_cpu_usage_seconds_total{container=\"a\",namespace=\"ns\",pod=\"web\"} 0 200000\n";
    for text in [format!("{TEXT}{half}"), format!("{TEXT}{none}")] {
        assert_eq!(read(bound(&[("ns", "web")]), &text).expect("reads").pods, [], "{text}");
    }
    let without_memory = "node_cpu_usage_seconds_total 1\n";
    assert_eq!(read(bound(&[]), without_memory).expect("reads").own, None);
}

#[test]
fn values_without_a_time_are_of_the_request() {
    let reading = read(bound(&[]), "node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 1").expect("reads");
    assert_eq!(reading.own.map(|own| own.read_ms), Some(7_000));
}

#[test]
fn an_answer_has_bounds() {
    let mut answer = bound(&[]);
    // Comments of the longest lines.
    let piece = [&[b'#'; LINE_BYTES_MAX - 1][..], b"\n"].concat().repeat(256);
    let read = (0..17).map(|_| answer.read(&piece)).collect::<Vec<_>>();
    assert_eq!(read.last(), Some(&Err(AnswerError::TooLarge)));
    assert_eq!(read.iter().filter(|read| read.is_ok()).count(), 16);

    let mut answer = bound(&[]);
    assert_eq!(answer.read(&[b'x'; LINE_BYTES_MAX]), Ok(()));
    assert_eq!(answer.read(b"x"), Err(AnswerError::LineTooLong));
    assert_eq!(bound(&[]).read(&[&[b'x'; LINE_BYTES_MAX + 1][..], b"\n"].concat()), Err(AnswerError::LineTooLong));
    assert_eq!(bound(&[]).read(b"\xff\n"), Err(AnswerError::NotText));

    let mut text = String::new();
    for container in 0..300 {
        for metric in ["container_cpu_usage_seconds_total", "container_memory_working_set_bytes"] {
            text.push_str(&format!("{metric}{{container=\"c{container}\",namespace=\"ns\",pod=\"web\"}} 1\n"));
        }
    }
    text.push_str(&format!("container_cpu_usage_seconds_total{{container=\"{}\",namespace=\"ns\",pod=\"web\"}} 1\n", "c".repeat(64)));
    let reading = super::tests::read(bound(&[("ns", "web")]), &text).expect("reads");
    assert_eq!(reading.pods.iter().map(|pod| pod.containers.len()).collect::<Vec<_>>(), [CONTAINERS_MAX]);
}

proptest! {
    #[test]
    fn pieces_of_any_size_make_the_same_answer(cuts in proptest::collection::vec(1..TEXT.len(), 0..20)) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        let mut answer = bound(&[("ns", "web")]);
        let mut from = 0;
        for cut in cuts.into_iter().chain([TEXT.len()]) {
            answer.read(&TEXT.as_bytes()[from..cut]).expect("reads");
            from = cut;
        }
        prop_assert_eq!(answer.end(), read(bound(&[("ns", "web")]), TEXT));
    }

    #[test]
    fn any_bytes_are_read_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut answer = bound(&[("ns", "web")]);
        if answer.read(&bytes).is_ok() {
            let _ = answer.end();
        }
    }
}
