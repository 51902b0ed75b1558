//! Connections to aggregated servers are kept while their terms stay the same.

use super::*;

/// Maximum number of connections of one client that sends one request after the other: the next request may come before
/// the previous connection is free.
const AT_MOST: usize = 3;

impl Backing {
    /// The connections of the requests for a path.
    fn connections(&self, path: &str) -> BTreeSet<usize> {
        self.received.lock().iter().filter(|request| request.path == path).map(|request| request.connection).collect()
    }

    async fn until_ended(&self, connections: &BTreeSet<usize>) {
        let ending = async {
            while !self.ended.lock().is_superset(connections) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ending).await.unwrap_or_else(|_| panic!("{connections:?} never ended"));
    }

    /// Sends some requests for a path; returns their connections.
    async fn request_often(&self, cluster: &Cluster, path: &str) -> BTreeSet<usize> {
        for _ in 0..20 {
            assert_eq!(cluster.get(path).await.ok()["asked"], path);
        }
        self.connections(path)
    }
}

#[tokio::test]
async fn connections_stay_until_their_configuration_changes() {
    let (cluster, backing) = registered().await;
    let requested = async |query: &str| backing.request_often(&cluster, &format!("{GADGETS}?{query}")).await;
    let first = requested("first").await;
    assert!(first.len() <= AT_MOST, "{first:?}");
    let bundle = STANDARD.encode(format!("{}{}", PKI.ca_pem(), PKI.front_proxy_ca_pem()));
    cluster.patch(&format!("{SERVICES}/v1.others.example.com"), "merge", json!({"spec": {"caBundle": bundle}})).await.ok();
    let second = requested("second").await;
    assert!(second.len() <= AT_MOST && second.is_disjoint(&first), "another authority: {second:?} after {first:?}");
    backing.until_ended(&first).await;
    let elsewhere = json!({"spec": {"externalName": "127.0.0.1"}});
    cluster.patch("/api/v1/namespaces/default/services/gadgets", "merge", elsewhere).await.ok();
    let third = requested("third").await;
    assert!(third.len() <= AT_MOST && third.is_disjoint(&second), "another address: {third:?} after {second:?}");
    backing.until_ended(&second).await;
    cluster.delete(&format!("{SERVICES}/v1.others.example.com")).await.ok();
    backing.until_ended(&third).await;
}

#[tokio::test]
async fn an_upgraded_connection_is_nobody_elses() {
    let (cluster, backing) = registered().await;
    let pooled = backing.request_often(&cluster, GADGETS).await;
    let path = format!("{GADGETS}/g/exec?a=b");
    let (_stream, head) = upgraded(&cluster, &path).await;
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(backing.connections(&path).is_disjoint(&pooled));
    assert!(backing.request_often(&cluster, GADGETS).await.len() <= AT_MOST);
}

#[tokio::test]
async fn a_connection_that_ended_is_not_used() {
    let (cluster, backing) = registered().await;
    for round in 0..5 {
        let path = format!("{GADGETS}?round={round}");
        let pooled = backing.request_often(&cluster, &path).await;
        backing.hang_up.notify_waiters();
        backing.until_ended(&pooled).await;
        assert_eq!(cluster.post(&format!("{path}&write"), json!({})).await.ok()["sent"], "{}");
    }
}

/// As Go's transport does.
#[tokio::test]
async fn what_only_reads_is_sent_once_more_where_a_connection_that_was_good_ends() {
    let (cluster, backing) = registered().await;
    let times = |path: &str| backing.received.lock().iter().filter(|request| request.path == path).count();
    backing.request_often(&cluster, GADGETS).await;
    let path = format!("{GADGETS}?break-once");
    assert_eq!(cluster.get(&path).await.ok()["asked"], path);
    assert_eq!((times(&path), backing.connections(&path).len()), (2, 2), "over another connection");
    backing.request_often(&cluster, GADGETS).await;
    let path = format!("{GADGETS}?1=break");
    assert_eq!(cluster.get(&path).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(times(&path), 2, "no oftener");
    let pooled = backing.request_often(&cluster, GADGETS).await;
    backing.hang_up.notify_waiters();
    backing.until_ended(&pooled).await;
    let path = format!("{GADGETS}?2=break");
    assert_eq!(cluster.get(&path).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(times(&path), 1, "over a connection that was never good");
}

/// The client cannot know whether the server has handled the request.
#[tokio::test]
async fn what_was_sent_is_not_sent_again() {
    let (cluster, backing) = registered().await;
    for path in [format!("{GADGETS}?1=break"), format!("{GADGETS}?2=break")] {
        backing.request_often(&cluster, GADGETS).await;
        let broken = cluster.post(&path, json!({})).await;
        assert_eq!(broken.status, StatusCode::SERVICE_UNAVAILABLE, "{broken:?}");
        assert!(broken.body.as_str().is_some_and(|text| text.starts_with("error trying to reach service: ")), "{broken:?}");
        assert_eq!(backing.received.lock().iter().filter(|request| request.path == path).count(), 1);
    }
}

/// A process may run longer than the front proxy's certificate is valid.
#[tokio::test]
async fn a_renewed_certificate_is_presented_from_then_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let ago = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * 300);
    let pki = Pki::open_at(directory.path(), &PkiConfig::for_cluster("cluster.local"), ago).expect("keys");
    let pki = Arc::new(pki);
    let config = Config::new(Arc::clone(&pki), SocketAddr::from(([10, 0, 0, 1], 6443)));
    let cluster = cluster_with(config, Arc::new(MemoryStore::new())).await;
    let backing = Backing::of(&pki).await;
    backing.register(&cluster, pki.ca_pem()).await;
    until(&cluster, "v1.others.example.com", |condition| condition["status"] == "True").await;
    let certificates = |path: &str| -> BTreeSet<Vec<u8>> {
        backing.received.lock().iter().filter(|request| request.path == path).map(|request| request.certificate.clone()).collect()
    };
    let (before, after) = (format!("{GADGETS}?before"), format!("{GADGETS}?after"));
    let pooled = backing.request_often(&cluster, &before).await;
    crate::renewal::renew(
        &cluster.server.app().connector,
        &cluster.server.app().aggregation,
        cluster.server.serving_certificate(),
        jiff::Timestamp::now(),
    );
    backing.request_often(&cluster, &after).await;
    assert_eq!((certificates(&before).len(), certificates(&after).len()), (1, 1));
    assert!(certificates(&after).is_disjoint(&certificates(&before)), "another certificate");
    backing.until_ended(&pooled).await;
    // The availability checks use the new certificate too.
    let discovery = "/apis/others.example.com/v1";
    backing.received.lock().retain(|request| request.path != discovery);
    look_again(&cluster).await;
    let looked = async {
        while certificates(discovery).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), looked).await.expect("looked at");
    assert_eq!(certificates(discovery), certificates(&after));
}
