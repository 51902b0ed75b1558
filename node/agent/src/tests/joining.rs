use futures::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::watcher::{self, watcher};

use super::*;
use crate::bootstrap::{self, Join, JoinError, ca_hash};

/// Signs every request, as the controllers would.
async fn sign_all(client: kube::Client) {
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    let mut events = std::pin::pin!(watcher(requests.clone(), watcher::Config::default()));
    while let Some(event) = events.next().await {
        let Ok(watcher::Event::Apply(request) | watcher::Event::InitApply(request)) = event else { continue };
        if request.status.as_ref().is_some_and(|status| status.certificate.is_some()) {
            continue;
        }
        let text = String::from_utf8(request.spec.request.0).expect("PEM");
        let usages = request.spec.usages.unwrap_or_default();
        let certificate = PKI.sign_csr(&text, &usages, Duration::from_secs(3_600)).expect("signed");
        let patch = json!({"status": {"certificate": ByteString(certificate.into_bytes())}});
        let name = request.metadata.name.expect("a name");
        requests.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("issued");
    }
}

/// Makes what `kubeadm` makes: `cluster-info` and a bootstrap token.
async fn prepare(client: &kube::Client) {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(PKI.ca_pem());
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": {"server": "", "certificate-authority-data": ca}}]});
    let info = json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": kubeconfig.to_string()}});
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    match maps.create(&PostParams::default(), &serde_json::from_value(info).expect("a map")).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => panic!("{error}"),
    }
    let data = json!({"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
        "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token"});
    let secret = json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token", "stringData": data});
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).expect("a secret")).await.expect("created");
}

#[tokio::test]
async fn a_node_joins_by_token_and_stays_a_member() {
    let cluster = Cluster::new(Script::default()).await;
    prepare(&cluster.client).await;
    tokio::spawn(sign_all(cluster.client.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let server = format!("https://127.0.0.1:{}", listener.local_addr().expect("an address").port());
    let serving = cluster.server.clone();
    tokio::spawn(async move {
        // The first client loses its connection, and connects again.
        let (first, _) = listener.accept().await.expect("a connection");
        drop(first);
        serving.serve(listener).await
    });
    let hash = ca_hash(PKI.ca_pem()).expect("a hash");
    let token = |hash: &str| Some(format!("{hash}.abcdef.0123456789abcdef").parse().expect("a token"));
    let data_dir = cluster.data.path().to_owned();
    let ask = |token| Join {
        server: server.clone(),
        token,
        node_name: "n2".to_owned(),
        node_ip: IpAddr::from([192, 0, 2, 2]),
        data_dir: data_dir.clone(),
    };

    assert!(matches!(bootstrap::join(&ask(None)).await, Err(JoinError::NoToken)));
    let wrong = bootstrap::join(&ask(token(&"0".repeat(64)))).await;
    assert!(matches!(wrong, Err(JoinError::OtherCa { .. })), "{:?}", wrong.err());

    let mut joined = bootstrap::join(&ask(token(&hash))).await.expect("joined");
    let version = joined.client.apiserver_version().await.expect("a version");
    assert_eq!(version.major, "1");
    let stand_in = joined.serving.borrow_and_update().certificate_pem.clone();
    let renewing = CancellationToken::new();
    let renewal = tokio::spawn(joined.renewal.run(renewing.clone()));
    joined.serving.changed().await.expect("signed");
    assert_ne!(joined.serving.borrow().certificate_pem, stand_in);
    renewing.cancel();
    renewal.await.expect("ended");
    let mode = std::fs::metadata(data_dir.join("pki/kubelet-client.pem")).expect("kept").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);

    let requests: Api<CertificateSigningRequest> = Api::all(cluster.client.clone());
    let count = async || requests.list(&kube::api::ListParams::default()).await.expect("a list").items.len();
    assert_eq!(count().await, 2);
    bootstrap::join(&ask(None)).await.expect("a member needs no token");
    assert_eq!(count().await, 2, "nothing is asked for twice");
}

#[tokio::test]
async fn a_node_without_an_address_for_each_pod_ends_before_it_is_ready() {
    let mut cluster = Cluster::new(Script::default()).await;
    (cluster.config.pod_cidr, cluster.config.pods_max, cluster.config.has_pods_max) = (None, 300, true);
    let mut agent = cluster.start();
    let nodes = cluster.nodes();
    until("the node is registered", async || nodes.get_opt(NODE).await.expect("an answer").is_some()).await;
    let range = json!({"spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}});
    nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(&range)).await.expect("given");
    // The first agent gets the range while it runs, the second one finds it.
    for start in ["the first", "the second"] {
        let ended = tokio::time::timeout(DEADLINE, &mut agent.task).await.expect(start).expect("joined");
        let failure = crate::error::chain(&ended.expect_err(start));
        let wanted = "--max-pods 300 is more than the 253 addresses of the node's Pod range 10.244.1.0/24: set --max-pods=253, or set \
                      --node-cidr-mask-size=23 of the server and delete the Node";
        assert!(failure.contains(wanted), "{start}: {failure}");
        let node = nodes.get(NODE).await.expect("the node");
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        assert!(conditions.iter().all(|condition| condition.type_ != "Ready" || condition.status != "True"), "{start}: {conditions:?}");
        agent = cluster.start();
    }
}
