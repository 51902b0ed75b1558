//! A ServiceAccount that may use few Secrets, and every other way to a Secret.

use super::World;

/// The account of the tenant's Pods may mount one Secret and use one as pull secret. There is one more of each.
const ACCOUNT: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: few, namespace: tenant, annotations: {kubernetes.io/enforce-mountable-secrets: 'true'}}
secrets: [{name: listed}]
imagePullSecrets: [{name: pull-listed}]
---
apiVersion: v1
kind: Secret
metadata: {name: listed, namespace: tenant}
stringData: {key: listed}
---
apiVersion: v1
kind: Secret
metadata: {name: unlisted, namespace: tenant}
stringData: {key: unlisted}
";

fn pod(name: &str, spec: &str, container: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: tenant}}\nspec:\n  serviceAccountName: few\n  \
         terminationGracePeriodSeconds: 1\n  {spec}\n  containers:\n    - {{name: main, image: 'samples/tools:latest', \
         imagePullPolicy: Never, command: [sleep, '1000'], {container}}}\n"
    )
}

fn init(container: &str) -> String {
    format!("initContainers: [{{name: first, image: x, {container}}}]")
}

/// Volumes, variables and pull secrets, in containers of every kind, at a Pod's creation and later.
pub(super) fn only_listed_secrets_are_mountable(world: &World<'_>) {
    world.admin.apply(ACCOUNT).ok();
    let from_key = |secret: &str| format!("env: [{{name: KEY, valueFrom: {{secretKeyRef: {{name: {secret}, key: key}}}}}}]");
    let from_all = |secret: &str| format!("envFrom: [{{secretRef: {{name: {secret}}}}}]");
    let projected = |secret: &str| {
        format!("volumes: [{{name: v, projected: {{sources: [{{downwardAPI: {{items: []}}}}, {{secret: {{name: {secret}}}}}]}}}}]")
    };
    let plain = "volumes: [{name: v, secret: {secretName: unlisted, optional: true}}]".to_owned();
    let pull = |secret: &str| format!("imagePullSecrets: [{{name: {secret}}}]");
    let because = "is not allowed because service account few does not reference that";
    for (spec, container, who) in [
        (plain, String::new(), "volume with secret.secretName=\"unlisted\""),
        (projected("unlisted"), String::new(), "volume with secret.secretName=\"unlisted\""),
        (String::new(), from_key("unlisted"), "container main with envVar KEY referencing secret.secretName=\"unlisted\""),
        (String::new(), from_all("unlisted"), "container main with envFrom referencing secret.secretName=\"unlisted\""),
        (init(&from_key("unlisted")), String::new(), "init container first with envVar KEY referencing secret.secretName=\"unlisted\""),
        (init(&from_all("unlisted")), String::new(), "init container first with envFrom referencing secret.secretName=\"unlisted\""),
        (pull("unlisted"), String::new(), "imagePullSecrets[0].name=\"unlisted\""),
        // A Secret that is listed for one use is not allowed for the other.
        (pull("listed"), String::new(), "imagePullSecrets[0].name=\"listed\""),
        (String::new(), from_all("pull-listed"), "container main with envFrom referencing secret.secretName=\"pull-listed\""),
    ] {
        let yaml = pod("greedy", &spec, &container);
        let complaint = world.mallory.with_input("create -f -", &yaml).fails();
        assert!(complaint.contains(who) && complaint.contains(because), "{yaml}\nexpected: {who}\n{complaint}");
    }
    // Listed Secrets can be used.
    world.mallory.with_input("create -f -", &pod("modest", &projected("listed"), &from_all("listed"))).ok();
    world.until_ready("tenant", "modest");
    assert_eq!(world.mallory.run(&["exec", "-n", "tenant", "modest", "--", "sh", "-c", "echo $key"]).ok(), "listed\n");
    // Later, with an ephemeral container: neither the tenant, nor a user who may add such.
    for source in [
        r#""env":[{"name":"KEY","valueFrom":{"secretKeyRef":{"name":"unlisted","key":"key"}}}]"#,
        r#""envFrom":[{"secretRef":{"name":"unlisted"}}]"#,
    ] {
        let patch = format!(r#"{{"spec":{{"ephemeralContainers":[{{"name":"late","image":"x",{source}}}]}}}}"#);
        let words = ["patch", "pod", "modest", "-n", "tenant", "--subresource=ephemeralcontainers", "-p", &patch];
        let complaint = world.mallory.run(&words).fails();
        assert!(complaint.contains("resource \"pods/ephemeralcontainers\""), "{complaint}");
        let complaint = world.admin.run(&words).fails();
        assert!(complaint.contains("ephemeral container late with env") && complaint.contains(because), "{complaint}");
    }
    // In objects that create Pods for the tenant.
    let set = format!(
        "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {{name: greedy, namespace: tenant}}\nspec:\n  selector: {{matchLabels: {{app: greedy}}}}\n  \
         template:\n    metadata: {{labels: {{app: greedy}}}}\n    spec: {{serviceAccountName: few, containers: [{{name: main, image: x, {}}}]}}\n",
        from_all("unlisted")
    );
    world.mallory.with_input("create -f -", &set).ok();
    world.until_event("tenant", "greedy", "container main with envFrom referencing secret.secretName=\"unlisted\"");
    world.mallory.ok("delete replicaset greedy -n tenant");
    world.mallory.ok("delete pod modest -n tenant --grace-period=1");
}
