use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::runtime::watcher;

use super::*;

fn client(cluster: &Cluster) -> kube::Client {
    kube::Client::new(cluster.server.client(UserInfo::new("admin", &["system:masters"])), "default")
}

#[tokio::test]
async fn kube_rs_takes_it_for_the_real_one() {
    let cluster = cluster().await;
    let client = client(&cluster);
    assert_eq!(client.apiserver_version().await.expect("a version").minor, "37");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert_eq!(namespaces.list(&ListParams::default()).await.expect("a list").items.len(), 4);
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map: ConfigMap = serde_json::from_value(config_map("a", json!({}))).expect("a map");
    let created = api.create(&PostParams::default(), &map).await.expect("created");
    let patch = Patch::Merge(json!({"data": {"b": "c"}}));
    let patched = api.patch("a", &PatchParams::default(), &patch).await.expect("patched");
    assert_eq!(patched.data.expect("data").len(), 2);
    let version = created.metadata.resource_version.expect("a version");
    let mut events = api.watch(&WatchParams::default(), &version).await.expect("a watch").boxed();
    assert!(matches!(events.try_next().await.expect("no error"), Some(kube::api::WatchEvent::Modified(_))));
    api.delete("a", &DeleteParams::default()).await.expect("deleted");
    assert!(api.get_opt("a").await.expect("an answer").is_none());
}

#[tokio::test]
async fn its_watcher_follows() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let api: Api<ConfigMap> = Api::default_namespaced(client(&cluster));
        let mut seen = Vec::new();
        let mut events = watcher(api, config).boxed();
        while let Some(event) = events.try_next().await.expect("no error") {
            match event {
                watcher::Event::InitApply(map) => seen.push(format!("init {}", map.metadata.name.unwrap_or_default())),
                watcher::Event::InitDone => {
                    cluster.config_map("b", json!({})).await;
                }
                watcher::Event::Apply(map) => {
                    seen.push(format!("apply {}", map.metadata.name.unwrap_or_default()));
                    break;
                }
                watcher::Event::Init | watcher::Event::Delete(_) => {}
            }
        }
        assert_eq!(seen, ["init a", "apply b"]);
        cluster.delete(&format!("{CONFIG_MAPS}/b")).await.ok();
    }
}

#[tokio::test]
async fn its_discovery_finds_every_kind() {
    let cluster = cluster().await;
    let discovery = kube::Discovery::new(client(&cluster)).run().await.expect("discovery");
    let (resource, _) = discovery
        .groups()
        .flat_map(kube::discovery::ApiGroup::recommended_resources)
        .find(|(r, _)| r.kind == "Deployment")
        .expect("Deployments");
    assert_eq!(resource.plural, "deployments");
}
