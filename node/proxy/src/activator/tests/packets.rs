//! The activator behind real rules. The world is that of the proxy's other tests with real packets.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::*;
use crate::fixtures::{activated, config, http, rules_of, service, slice, web};
use crate::tests::{ask, both, isolated, serve, write};
use crate::tool;

const ALL: [&str; 3] = ["a", "", "out"];

fn asking(from: &'static str, address: &'static str) -> JoinHandle<Result<String, ErrorKind>> {
    tokio::task::spawn_blocking(move || ask(from, address))
}

async fn until_waiting(slots: &Slots, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while slots.waiting().iter().map(|(_, waiting)| *waiting as usize).sum::<usize>() != count {
        assert!(Instant::now() < deadline, "{:?} instead of {count}", slots.waiting());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn packets_to_a_service_without_pods_wait_and_nothing_else_does() {
    isolated(|| async {
        let address = config().activator.expect("an address");
        let listener = TcpListener::bind(address).await.expect("bound");
        let activator = Activator { listener, address, original, service_cidr: config().service_cidr };
        let (activations, present) = watch::channel(Arc::default());
        let (slots, cancel) = (Arc::new(Slots::new(Limits::default())), CancellationToken::new());
        let running = tokio::spawn(activator.run(Shared { present, slots: Arc::clone(&slots) }, cancel.clone()));
        let mut spec = web("10.96.0.1");
        spec["ports"] = json!([{"name": "http", "port": 80, "nodePort": 30080}]);
        // A tenant has a Service whose endpoint is the activator.
        let evil = || {
            let port = json!({"name": "http", "port": address.port()});
            rules_of(&service("evil", web("10.96.0.66")), &[slice("evil", port, &[("192.0.2.1", "here", "ready")])])
        };
        let mut installed = RuleSet::default();
        let mut rules = rules_of(&activated("web", spec.clone()), &[]);
        rules.merge(&evil());
        activations.send_replace(Arc::new(Activations::of(&rules)));
        write(&mut installed, rules).await;

        let waiting: Vec<_> = ALL.into_iter().flat_map(|from| [asking(from, "10.96.0.1:80"), asking(from, "192.0.2.1:30080")]).collect();
        until_waiting(&slots, waiting.len()).await;
        for from in ALL {
            assert_eq!(ask(from, "192.0.2.1:40000"), Err(ErrorKind::ConnectionRefused), "the activator itself, from {from:?}");
            assert_eq!(ask(from, "10.96.0.1:81"), Err(ErrorKind::ConnectionRefused), "another port, from {from:?}");
            assert_eq!(ask(from, "10.96.0.66:80"), Err(ErrorKind::ConnectionReset), "a way around, from {from:?}");
        }

        serve("a");
        let mut rules = rules_of(&activated("web", spec.clone()), &[http("web", &[("10.244.1.2", "here", "ready")])]);
        rules.merge(&evil());
        activations.send_replace(Arc::new(Activations::of(&rules)));
        write(&mut installed, rules).await;
        for waiting in waiting {
            assert_eq!(waiting.await.expect("no panic"), Ok("a 10.244.1.1".to_owned()));
        }
        assert_eq!(ask("b", "10.96.0.1:80"), Ok("a 10.244.1.3".to_owned()), "past the activator");
        let counters = tool::counters("sk1-proxy").await.expect("counted");
        assert_eq!(counters.values().copied().collect::<Vec<_>>(), [7], "{counters:?}");

        // The counter outlives changes of the endpoints, and goes with the mark.
        write(&mut installed, rules_of(&activated("web", spec.clone()), &[both("web")])).await;
        assert_eq!(tool::counters("sk1-proxy").await.expect("counted"), counters);
        write(&mut installed, rules_of(&service("web", spec), &[])).await;
        assert!(tool::counters("sk1-proxy").await.expect("counted").is_empty());
        assert_eq!(ask("a", "10.96.0.1:80"), Err(ErrorKind::ConnectionRefused));
        assert_eq!(slots.waiting(), []);
        cancel.cancel();
        running.await.expect("it ends");
    });
}

#[test]
fn an_activator_listens_at_the_address_of_its_node_alone() {
    isolated(|| async {
        let activator = Activator::listen(&config()).await.expect("it listens");
        assert_eq!(*activator.address().ip(), Ipv4Addr::new(192, 0, 2, 1));
        assert!(activator.address().port() > 0);
        let elsewhere = Config { node_ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77)), ..config() };
        assert!(Activator::listen(&elsewhere).await.is_none());
    });
}
