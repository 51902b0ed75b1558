//! The effect of the built-in admission plugins on objects, as kubectl shows it: defaults, warnings and rejections.

use serde_json::json;
use tests::net::Net;
use tests::{Cluster, Kubectl, eventually};

/// A Pod with one container; `rest` is added to the container.
fn pod(name: &str, rest: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: i{rest}}}]}}\n")
}

#[test]
fn built_in_plugins_have_their_say() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    pods_are_as_secure_as_their_namespace_says(&kubectl);
    limits_are_set_and_enforced(&kubectl);
    quotas_want_what_they_count(&kubectl);
    classes_are_looked_up(&kubectl);
    ending_namespaces_take_nothing_in(&kubectl);
}

fn pods_are_as_secure_as_their_namespace_says(kubectl: &Kubectl<'_>) {
    kubectl.ok("create namespace guarded");
    kubectl.until_usable("guarded");
    let level =
        |words: &str| kubectl.run(&["label", "--overwrite", "namespace", "guarded", &format!("pod-security.kubernetes.io/{words}")]);
    let unknown = level("enforce=strict").fails();
    assert!(
        unknown.contains(
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, baseline, restricted"
        ),
        "{unknown}"
    );
    kubectl.with_input("create -n guarded -f -", &pod("early", "")).ok();
    let root = "{\"spec\":{\"containers\":[{\"name\":\"c\",\"securityContext\":{\"runAsUser\":0}}]}}";
    let changed = kubectl.fails(&format!("patch pod early -n guarded -p {root}"));
    assert!(changed.contains("pod updates may not change fields other than"), "{changed}");
    let privileged = pod("late", ", securityContext: {privileged: true}");
    assert_eq!(level("enforce=baseline").stderr, "", "what is there is good enough");
    assert_eq!(
        kubectl.with_input("create -n guarded -f -", &privileged).fails(),
        "Error from server (Forbidden): error when creating \"STDIN\": pods \"late\" is forbidden: violates PodSecurity \"baseline:latest\": \
         privileged (container \"c\" must not set securityContext.privileged=true)\n"
    );
    let lacking = "allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile";
    let dry =
        kubectl.run(&["label", "--dry-run=server", "--overwrite", "namespace", "guarded", "pod-security.kubernetes.io/enforce=restricted"]);
    let wanted = "Warning: existing pods in namespace \"guarded\" violate the new PodSecurity enforce level \"restricted:latest\"\n";
    assert_eq!(dry.stderr, format!("{wanted}Warning: early: {lacking}\n"));
    level("warn=restricted").ok();
    // A Deployment that violates the level gets a warning and is accepted.
    let made = kubectl.run(&["create", "deployment", "web", "--image=i", "--replicas=0", "-n", "guarded"]);
    assert_eq!(
        made.stderr,
        "Warning: would violate PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"i\" must set \
         securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"i\" must set \
         securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"i\" must set \
         securityContext.runAsNonRoot=true), seccompProfile (pod or container \"i\" must set securityContext.seccompProfile.type to \
         \"RuntimeDefault\" or \"Localhost\")\n"
    );
    assert_eq!(made.ok(), "deployment.apps/web created\n");
}

const RANGE: &str = "
apiVersion: v1
kind: LimitRange
metadata: {name: range}
spec:
  limits:
    - {type: Container, default: {cpu: 500m}, defaultRequest: {cpu: 100m}, max: {cpu: '1'}}
    - {type: PersistentVolumeClaim, max: {storage: 1Gi}}
";

fn limits_are_set_and_enforced(kubectl: &Kubectl<'_>) {
    kubectl.ok("create namespace small");
    kubectl.until_usable("small");
    kubectl.with_input("create -n small -f -", RANGE).ok();
    kubectl.with_input("create -n small -f -", &pod("given", "")).ok();
    let given = kubectl.json("get pod given -n small");
    assert_eq!(given["spec"]["containers"][0]["resources"], json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}));
    assert_eq!(
        given["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    let big = kubectl.with_input("create -n small -f -", &pod("big", ", resources: {limits: {cpu: 2}}")).fails();
    assert!(big.contains("pods \"big\" is forbidden: maximum cpu usage per Container is 1, but limit is 2"), "{big}");
    let claim = CLAIM.replace("1Gi", "2Gi");
    let wide = kubectl.with_input("create -n small -f -", &claim).fails();
    assert!(wide.contains("maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"), "{wide}");
    let described = kubectl.ok("describe limitrange range -n small");
    let row = ["Container", "cpu", "-", "1", "100m", "500m", "-"];
    assert!(described.lines().any(|line| line.split_whitespace().eq(row)), "{described}");
}

fn quotas_want_what_they_count(kubectl: &Kubectl<'_>) {
    kubectl.ok("create namespace counted");
    kubectl.until_usable("counted");
    kubectl.ok("create quota compute --hard=requests.cpu=1,pods=2 -n counted");
    eventually("a first count", || {
        let counted = kubectl.ok("get quota compute -n counted -o jsonpath={.status.used.pods}");
        if counted == "0" { Ok(()) } else { Err(counted) }
    });
    let silent = kubectl.with_input("create -n counted -f -", &pod("silent", "")).fails();
    assert!(silent.contains("pods \"silent\" is forbidden: failed quota: compute: must specify requests.cpu for: c"), "{silent}");
    let asks = |name: &str, cpu: &str| {
        let pod = pod(name, &format!(", resources: {{requests: {{cpu: {cpu}}}}}"));
        kubectl.with_input("create -n counted -f -", &pod)
    };
    asks("one", "700m").ok();
    let over = asks("two", "400m").fails();
    assert!(
        over.contains("exceeded quota: compute, requested: requests.cpu=400m, used: requests.cpu=700m, limited: requests.cpu=1"),
        "{over}"
    );
    asks("three", "300m").ok();
    let counts = |wanted: &str| {
        eventually(&format!("{wanted} are counted"), || {
            let used = kubectl.ok("get quota compute -n counted -o jsonpath={.status.used}");
            if used == wanted { Ok(()) } else { Err(used) }
        });
    };
    counts("{\"pods\":\"2\",\"requests.cpu\":\"1\"}");
    kubectl.ok("delete pod one -n counted --now");
    counts("{\"pods\":\"1\",\"requests.cpu\":\"300m\"}");
    asks("four", "700m").ok();
}

const CLASSES: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: standard, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}
provisioner: d.example.com
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: heavy}
handler: runc
overhead: {podFixed: {memory: 64Mi}}
scheduling: {nodeSelector: {size: big}}
";

const CLAIM: &str = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";

const CLASSED: &str = "
apiVersion: v1
kind: Pod
metadata: {name: classed}
spec: {priorityClassName: urgent, runtimeClassName: heavy, containers: [{name: c, image: i}]}
";

fn classes_are_looked_up(kubectl: &Kubectl<'_>) {
    let refused = kubectl.apply(CLASSED).fails();
    assert!(refused.contains("pods \"classed\" is forbidden: no PriorityClass with name urgent was found"), "{refused}");
    kubectl.ok("create priorityclass urgent --value=1000 --preemption-policy=Never");
    kubectl.apply(CLASSES).ok();
    kubectl.apply(CLASSED).ok();
    let classed = kubectl.json("get pod classed");
    assert_eq!((&classed["spec"]["priority"], &classed["spec"]["preemptionPolicy"]), (&json!(1000), &json!("Never")));
    assert_eq!(classed["spec"]["overhead"], json!({"memory": "64Mi"}));
    assert_eq!(classed["spec"]["nodeSelector"], json!({"size": "big"}));
    let away = |condition: &str| {
        let key = format!("node.kubernetes.io/{condition}");
        json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    };
    assert_eq!(classed["spec"]["tolerations"], json!([away("not-ready"), away("unreachable")]));
    kubectl.ok("create priorityclass usual --value=7 --global-default");
    kubectl.apply(&pod("plain", "")).ok();
    let plain = kubectl.json("get pod plain");
    assert_eq!((&plain["spec"]["priority"], &plain["spec"]["priorityClassName"]), (&json!(7), &json!("usual")));
    let second = kubectl.fails("create priorityclass second --value=8 --global-default");
    assert!(second.contains("PriorityClass usual is already marked as default. Only one default can exist"), "{second}");
    kubectl.apply(CLAIM).ok();
    assert_eq!(kubectl.field("pvc/claim", "/spec/storageClassName"), "standard");
}

fn ending_namespaces_take_nothing_in(kubectl: &Kubectl<'_>) {
    let refused = kubectl.fails("delete namespace default");
    assert!(refused.contains("namespaces \"default\" is forbidden: this namespace may not be deleted"), "{refused}");
    kubectl.ok("create namespace ending");
    kubectl.ok("create configmap held -n ending");
    let finalizers = |names: &str| format!("patch configmap held -n ending --type=merge -p {{\"metadata\":{{\"finalizers\":[{names}]}}}}");
    kubectl.ok(&finalizers("\"example.com/hold\""));
    kubectl.ok("delete namespace ending --wait=false");
    let late = kubectl.fails("create configmap late -n ending");
    let wanted = "configmaps \"late\" is forbidden: unable to create new content in namespace ending because it is being terminated";
    assert!(late.contains(wanted), "{late}");
    eventually("the namespace tells what it waits for", || {
        let message = kubectl.condition("namespace/ending", "NamespaceFinalizersRemaining")["message"].to_string();
        if message.contains("example.com/hold in 1 resource instances") { Ok(()) } else { Err(message) }
    });
    kubectl.ok(&finalizers(""));
    kubectl.ok("wait --for=delete namespace/ending --timeout=60s");
}
