//! A hostile tenant: a real user with the ClusterRole `admin` in a namespace with the PodSecurity level `baseline`, and
//! in a second namespace without any level. The tenant attacks a cluster with a neighbour, who must not notice
//! anything.

mod bombs;
mod disk;
mod floods;
mod network;
mod pods;
mod rights;
mod secrets;

use std::os::unix::ffi::OsStringExt as _;

use serde_json::json;
use tests::{Cluster, Kubectl, Net, eventually};

/// The namespaces and their users; `ports` is for what `baseline` forbids.
const NAMESPACES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: tenant, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: v1
kind: Namespace
metadata: {name: ports}
---
apiVersion: v1
kind: Namespace
metadata: {name: neighbour}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: admin, namespace: tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: User, name: mallory, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: admin, namespace: ports}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: User, name: mallory, apiGroup: rbac.authorization.k8s.io}]
";

/// The neighbour's objects.
const NEIGHBOUR: &str = "
apiVersion: v1
kind: Pod
metadata: {name: good, namespace: neighbour, labels: {app: good}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, 'mkdir /tmp/www; echo neighbour > /tmp/www/index.html; exec busybox httpd -f -p 80 -h /tmp/www']
---
apiVersion: v1
kind: Service
metadata: {name: good, namespace: neighbour}
spec: {selector: {app: good}, ports: [{port: 80}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: secret, namespace: neighbour}
data: {what: is-not-for-mallory}
";

/// The cluster and its two users.
struct World<'a> {
    cluster: &'a Cluster,
    admin: Kubectl<'a>,
    mallory: Kubectl<'a>,
}

impl World<'_> {
    /// A request of mallory that must fail with this message.
    #[track_caller]
    fn refused(&self, words: &str, why: &str) {
        let complaint = self.mallory.fails(words);
        assert!(complaint.contains(why), "{words}\nexpected: {why}\n{complaint}");
    }

    /// An object of mallory that must be rejected with this message.
    #[track_caller]
    fn refuses(&self, yaml: &str, why: &str) {
        let complaint = self.mallory.with_input("create -f -", yaml).fails();
        assert!(complaint.contains(why), "{yaml}\nexpected: {why}\n{complaint}");
    }

    /// Waits until a Pod of a namespace is ready.
    #[track_caller]
    fn until_ready(&self, namespace: &str, pod: &str) {
        eventually(&format!("pod {namespace}/{pod} is ready"), || {
            let said =
                self.admin.run(&["get", "pod", pod, "-n", namespace, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}"]);
            if said.stdout == "True" { Ok(()) } else { Err(self.admin.run(&["describe", "pod", pod, "-n", namespace]).to_string()) }
        });
    }

    /// Waits for an event about an object that contains this text.
    #[track_caller]
    fn until_event(&self, namespace: &str, object: &str, text: &str) {
        eventually(&format!("an event of {namespace}/{object}: {text}"), || {
            let events = self.admin.run(&["get", "events", "-n", namespace, "--field-selector", &format!("involvedObject.name={object}")]);
            if events.stdout.contains(text) { Ok(()) } else { Err(events.to_string()) }
        });
    }

    /// The neighbour reaches names, its own Service and the API server, and each is the right one.
    #[track_caller]
    fn neighbour_is_well(&self) {
        let inside = |command: &str| self.admin.run(&["exec", "-n", "neighbour", "good", "--", "sh", "-c", command]).ok();
        assert!(inside("nslookup kubernetes.default.svc.cluster.local").contains("Address: 10.96.0.1\n"));
        assert_eq!(inside("wget -qO- http://good.neighbour"), "neighbour\n");
        // Checked with the cluster's own certificate.
        let authority = self.cluster.data_dir().join("pki/ca.crt").display().to_string();
        let version = self.cluster.net.run("curl", &["-sS", "--max-time", "10", "--cacert", &authority, "https://10.96.0.1/version"]);
        assert!(version.stdout.contains("gitVersion"), "{version}");
    }
}

#[test]
fn a_hostile_tenant_gains_nothing() {
    let files = tempfile::tempdir().expect("a directory");
    let tokens = files.path().join("tokens.csv");
    std::fs::write(&tokens, "mallorys-token,mallory,1\n").expect("writes");
    let flag = format!("--token-auth-file={}", tokens.display());
    let mut cluster = Cluster::prepared(Net::alone(), &["up", &flag]);
    // The environment may have variables that are not UTF-8; the server, the node and its shims must accept that.
    cluster.set_env("SKIFF_STORY_NOT_TEXT", std::ffi::OsString::from_vec(vec![0xff, 0xfe]).into());
    cluster.start();
    cluster.load_samples();
    let world =
        World { cluster: &cluster, admin: cluster.kubectl(), mallory: cluster.kubectl_as("mallory", &json!({"token": "mallorys-token"})) };
    world.admin.apply(NAMESPACES).ok();
    for namespace in ["tenant", "ports", "neighbour"] {
        world.admin.until_usable(namespace);
    }
    world.admin.apply(NEIGHBOUR).ok();
    world.until_ready("neighbour", "good");
    world.neighbour_is_well();

    rights::what_others_have_is_out_of_reach(&world);
    rights::more_rights_are_out_of_reach(&world);
    rights::quotas_hold(&world);
    pods::what_baseline_forbids_is_not_possible_by_a_detour(&world);
    pods::paths_do_not_lead_out(&world);
    pods::the_nodes_network_is_not_its_shared_memory(&world);
    network::addresses_of_others_are_not_taken(&world);
    network::host_ports_of_others_are_not_taken(&world);
    network::a_pod_speaks_for_itself_alone(&world);
    network::the_servers_are_no_stepping_stones(&world);
    secrets::only_listed_secrets_are_mountable(&world);
    bombs::expressions_cost_no_more_than_their_limit(&world);
    bombs::patches_do_not_grow(&world);
    floods::prepare(&world);
    floods::a_race_gains_no_more_than_the_quota(&world);
    floods::a_flood_of_events_drowns_nobody(&world);
    floods::two_thousand_million_pods_are_three(&world);
    world.neighbour_is_well();
    assert!(!cluster.log().contains("panicked"), "{}", cluster.log());
}
