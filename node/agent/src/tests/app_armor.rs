use super::*;
use crate::layout::label;

/// A node whose kernel has AppArmor and the profile `own`, without the program that loads profiles.
#[tokio::test]
async fn containers_have_the_profiles_that_their_pods_name() {
    let (cluster, specs) = recorded::cluster().await;
    let paths = &cluster.config.app_armor;
    std::fs::create_dir_all(&paths.dir).expect("made");
    std::fs::write(&paths.enabled, "Y\n").expect("written");
    std::fs::write(paths.dir.join("profiles"), "own (enforce)\n").expect("written");
    let _agent = cluster.start();
    cluster.node_ready().await;
    let of = |image: &str, profile: Value| {
        let mut spec = one(image);
        spec["securityContext"] = json!({"appArmorProfile": profile});
        spec
    };
    let local = |name: &str| json!({"type": "Localhost", "localhostProfile": name});
    for (name, image) in [("linux", "web:1"), ("wasm", "wasm/web:1")] {
        cluster.create(name, of(image, local("own"))).await;
    }
    cluster.create("plain", one("web:1")).await;
    for (name, profile) in [("linux", Some("own")), ("wasm", Some("own")), ("plain", None)] {
        cluster.ready(name).await;
        let specs = specs.lock();
        let spec = specs.iter().find(|spec| spec.labels[label::POD_NAME] == name).expect("its container");
        assert_eq!(spec.security.app_armor.as_deref(), profile, "{name}");
    }
    for (name, profile, words) in [
        ("absent", local("absent"), "apparmor profile not found absent"),
        ("default", json!({"type": "RuntimeDefault"}), "install the package apparmor on the node"),
    ] {
        cluster.create(name, of("web:1", profile)).await;
        let refused = |status: &Value| {
            let waiting = &status["containerStatuses"][0]["state"]["waiting"];
            waiting["reason"] == "CreateContainerError" && waiting["message"].as_str().is_some_and(|text| text.contains(words))
        };
        cluster.status(name, "a refusal", refused).await;
    }
}
