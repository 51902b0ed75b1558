//! The network: addresses of others, frames of others, servers as proxies to forbidden places.

use tests::eventually;

use super::World;

/// The tenant's Service that requests addresses of others, and its Pod.
const THIEF: &str = "
apiVersion: v1
kind: Pod
metadata: {name: thief, namespace: tenant, labels: {app: thief}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, 'mkdir /tmp/www; echo stolen > /tmp/www/index.html; exec busybox httpd -f -p 80 -h /tmp/www']
---
apiVersion: v1
kind: Service
metadata: {name: thief, namespace: tenant}
spec:
  type: LoadBalancer
  selector: {app: thief}
  loadBalancerIP: 10.96.0.10
  ports:
    - {name: dns, port: 53, targetPort: 80}
    - {name: dns-udp, port: 53, targetPort: 80, protocol: UDP}
    - {name: https, port: 443, targetPort: 80}
    - {name: kubelet, port: 10250, targetPort: 80}
    - {name: api, port: 6443, targetPort: 80}
    - {name: http, port: 80}
";

fn host_ports(name: &str, ports: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: ports}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n    \
         - {{name: main, image: 'samples/tools:latest', imagePullPolicy: Never, command: [sleep, '1000'], ports: [{ports}]}}\n"
    )
}

pub(super) fn addresses_of_others_are_not_taken(world: &World<'_>) {
    let node = &world.cluster.net.ip;
    world.mallory.with_input("create -f -", THIEF).ok();
    world.until_ready("tenant", "thief");
    for ip in ["10.96.0.10", "10.96.0.1", node, "8.8.8.8"] {
        let patch = format!(r#"{{"spec":{{"externalIPs":["{ip}"]}}}}"#);
        world.refused(&format!("patch service thief -n tenant -p {patch}"), "Use of external IPs is denied by admission control");
    }
    for ip in ["127.0.0.1", "169.254.169.254", "0.0.0.0"] {
        world.refused(&format!(r#"patch service thief -n tenant -p {{"spec":{{"externalIPs":["{ip}"]}}}}"#), "Invalid value");
    }
    let taken =
        "apiVersion: v1\nkind: Service\nmetadata: {name: dns, namespace: tenant}\nspec: {clusterIP: 10.96.0.10, ports: [{port: 53}]}";
    world.refuses(taken, "provided IP is already allocated");
    let status = format!(
        r#"{{"status":{{"loadBalancer":{{"ingress":[{{"ip":"10.96.0.10"}},{{"ip":"10.96.0.1"}},{{"ip":"{node}"}},{{"ip":"10.244.0.1"}}]}}}}}}"#
    );
    let balance = ["patch", "service", "thief", "-n", "tenant", "--subresource=status", "--type=merge", "-p", &status];
    assert!(world.mallory.run(&balance).fails().contains("cannot patch resource \"services/status\""));
    // A careless load balancer controller sets the address; the node is careful.
    world.admin.run(&balance).ok();
    for what in [
        "External address 10.96.0.10 is not served: it lies in the range of Service addresses 10.96.0.0/12",
        "External address 10.244.0.1 is not served: it lies in the range of Pod addresses 10.244.0.0/16",
        &format!("External address {node} is not served: a program of the node listens on port 6443/tcp there"),
        &format!("External address {node} is not served: a program of the node listens on port 10250/tcp there"),
    ] {
        world.until_event("tenant", "thief", what);
    }
    world.neighbour_is_well();
    for (kind, group, what) in [
        ("Endpoints", "v1", "subsets: [{addresses: [{ip: 127.0.0.1}], ports: [{port: 6443}]}]"),
        ("EndpointSlice", "discovery.k8s.io/v1", "addressType: IPv4\nendpoints: [{addresses: [127.0.0.1]}]\nports: [{port: 6443}]"),
    ] {
        let object = format!(
            "apiVersion: {group}\nkind: {kind}\nmetadata: {{name: thief-x, namespace: tenant, labels: {{kubernetes.io/service-name: thief}}}}\n{what}"
        );
        world.refuses(&object, "orbidden");
        for ip in ["127.0.0.1", "169.254.169.254"] {
            let object = object.replace("127.0.0.1", ip);
            let complaint = world.admin.with_input("create -f -", &object).fails();
            assert!(complaint.contains("Invalid value"), "{complaint}");
        }
    }
    host_ports_take_nothing(world);
}

/// Without `baseline`, the tenant may use host ports, but not those of cluster DNS and of the node.
fn host_ports_take_nothing(world: &World<'_>) {
    for (name, ports, why) in [
        ("api", "{containerPort: 80, hostPort: 6443}", "host port 6443/tcp is in use: a program of the node listens at 0.0.0.0"),
        ("kubelet", "{containerPort: 80, hostPort: 10250}", "host port 10250/tcp is in use: a program of the node listens at 0.0.0.0"),
        ("dns", "{containerPort: 80, hostPort: 53, hostIP: 10.96.0.10}", "host IP 10.96.0.10 is not the node's own"),
        ("gateway", "{containerPort: 80, hostPort: 53, hostIP: 10.244.0.1}", "host IP 10.244.0.1 is not the node's own"),
    ] {
        world.mallory.with_input("create -f -", &host_ports(name, ports)).ok();
        world.until_event("ports", name, why);
    }
    world.mallory.ok("delete pod --all -n ports --grace-period=1");
    let both = "{containerPort: 80, hostPort: 53}, {containerPort: 80, hostPort: 53, protocol: UDP}, {containerPort: 80, hostPort: 443}";
    world.mallory.with_input("create -f -", &host_ports("free", both)).ok();
    world.until_ready("ports", "free");
    world.neighbour_is_well();
    world.mallory.ok("delete pod --all -n ports --grace-period=1");
}

/// A Pod that answers with its own name on a port of the node.
fn on_port(namespace: &str, name: &str, port: &str, node: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  {node}\n  containers:\n    \
         - name: main\n      image: samples/tools:latest\n      imagePullPolicy: Never\n      ports: [{{containerPort: 80, {port}}}]\n      \
         command: [sh, -c, 'mkdir /tmp/www; echo {name} > /tmp/www/index.html; exec busybox httpd -f -p 80 -h /tmp/www']\n"
    )
}

/// A port that another namespace's Pod uses stays with that Pod: on every address of the node, also for Pods that
/// bypass the scheduler, until the Pod is gone.
pub(super) fn host_ports_of_others_are_not_taken(world: &World<'_>) {
    let (cluster, node) = (world.cluster, world.cluster.net.ip.clone());
    let ask = |at: &str| cluster.net.run("curl", &["-sS", "--max-time", "5", &format!("http://{at}")]);
    // With `baseline` there are no host ports at all, on no address.
    for port in ["hostPort: 8080", "hostPort: 8080, hostIP: 127.0.0.1"] {
        world.refuses(&on_port("tenant", "thief-8080", port, ""), "violates PodSecurity \"baseline:latest\": hostPort");
    }
    world.admin.apply(&on_port("neighbour", "everywhere", "hostPort: 8080", "")).ok();
    world.admin.apply(&on_port("neighbour", "one-address", &format!("hostPort: 8081, hostIP: {node}"), "")).ok();
    for pod in ["everywhere", "one-address"] {
        world.until_ready("neighbour", pod);
    }
    let untouched = || {
        for (at, name) in [
            (format!("{node}:8080"), "everywhere\n"),
            ("127.0.0.1:8080".to_owned(), "everywhere\n"),
            (format!("{node}:8081"), "one-address\n"),
        ] {
            assert_eq!(ask(&at).ok(), name, "{at}");
        }
    };
    untouched();
    let local = "hostIP: 127.0.0.1".to_owned();
    let wanted = [
        ("all", "hostPort: 8080".to_owned()),
        ("node", format!("hostPort: 8080, hostIP: {node}")),
        ("local", format!("hostPort: 8080, {local}")),
        ("around", "hostPort: 8081".to_owned()),
        ("same", format!("hostPort: 8081, hostIP: {node}")),
    ];
    let name = world.admin.ok("get nodes -o jsonpath={.items[0].metadata.name}");
    for (thief, port) in &wanted {
        world.mallory.with_input("create -f -", &on_port("ports", thief, port, "")).ok();
        // The tenant binds the Pod, which upstream allows too.
        world.mallory.with_input("create -f -", &on_port("ports", &format!("bound-{thief}"), port, &format!("nodeName: {name}"))).ok();
    }
    let clash = "node(s) didn't have free ports for the requested pod ports";
    for (thief, _) in &wanted {
        world.until_event("ports", thief, clash);
        let bound = format!("bound-{thief}");
        eventually(&format!("{bound} is rejected"), || {
            let found = world.admin.run(&[
                "get",
                "pod",
                &bound,
                "-n",
                "ports",
                "-o",
                "jsonpath={.status.phase} {.status.reason} {.status.message}",
            ]);
            let words = format!("Failed NodePorts Pod was rejected: Predicate NodePorts failed: {clash}");
            if found.stdout.starts_with(&words) { Ok(()) } else { Err(found.to_string()) }
        });
    }
    let waiting = world.admin.ok("get pods -n ports --field-selector=status.phase=Pending -o jsonpath={.items[*].spec.nodeName}");
    assert_eq!(waiting, "", "none of those that wait is bound");
    // The port is free on an address on which no Pod uses it, and the Pod gets only that address.
    world.mallory.with_input("create -f -", &on_port("ports", "beside", &format!("hostPort: 8081, {local}"), "")).ok();
    world.until_ready("ports", "beside");
    assert_eq!(ask("127.0.0.1:8081").ok(), "beside\n");
    untouched();
    // When the first Pod is gone, its port is free: one of the waiting Pods gets it. Then the Pod that had the port
    // first has to wait.
    world.mallory.ok("delete pods all node around same -n ports --grace-period=1");
    world.admin.ok("delete pod everywhere -n neighbour --grace-period=1");
    world.until_ready("ports", "local");
    assert_eq!(ask("127.0.0.1:8080").ok(), "local\n");
    assert!(!ask(&format!("{node}:8080")).succeeded(), "what is held on loopback is on loopback alone");
    world.admin.apply(&on_port("neighbour", "everywhere", "hostPort: 8080", "")).ok();
    world.until_event("neighbour", "everywhere", clash);
    world.mallory.ok("delete pods --all -n ports --grace-period=1");
    world.until_ready("neighbour", "everywhere");
    untouched();
    world.admin.ok("delete pods everywhere one-address -n neighbour --grace-period=1");
}

/// A Pod with the default capabilities of a container, `NET_RAW` among them.
pub(super) fn a_pod_speaks_for_itself_alone(world: &World<'_>) {
    let inside = |namespace: &str, pod: &str, command: &str| world.admin.run(&["exec", "-n", namespace, pod, "--", "sh", "-c", command]);
    let neighbour = world.admin.ok("get pod good -n neighbour -o jsonpath={.status.podIP}");
    let neighbours = || inside("neighbour", "good", "cat /proc/net/arp").ok();
    let before = neighbours();
    assert!(before.contains("10.244.0.1") && before.contains("0x6"), "the gateway is known for good: {before}");
    // The Pod sends an ARP request; the neighbour does not receive it.
    let reply = inside("tenant", "thief", &format!("busybox arping -c 2 -I eth0 {neighbour}"));
    assert!(reply.stdout.contains("Sent 2 probe") && reply.stdout.contains("Received 0 response"), "{reply}");
    assert_eq!(neighbours(), before);
    assert_eq!(inside("tenant", "thief", &format!("wget -qO- http://{neighbour}")).ok(), "neighbour\n", "routed, as it should be");
    world.neighbour_is_well();
    // Beyond loopback, the node listens only on ports that demand authentication, on the port of cluster DNS, and where connections wait
    // for endpoints: only the rules of Services lead there.
    let listening = world.cluster.net.run("ss", &["-Htln"]).ok();
    let open = listening.lines().filter_map(|line| line.split_whitespace().nth(3)).filter(|at| !at.starts_with("127."));
    let guarded = ["*:6443", "0.0.0.0:6443", "0.0.0.0:10250", "*:10250", "10.96.0.10:53"];
    let others: Vec<&str> = open.filter(|at| !guarded.contains(at)).collect();
    let [activator] = others[..] else { panic!("{others:?}") };
    assert!(activator.starts_with(&format!("{}:", world.cluster.net.ip)), "{activator}");
    let reply = world.cluster.net.run("curl", &["-sS", "--max-time", "10", &format!("http://{activator}")]);
    assert!(reply.stderr.contains("Failed to connect") || reply.stderr.contains("Could not connect"), "{reply}");
    let reply = inside("tenant", "thief", &format!("timeout 10 wget -qO- http://{activator}"));
    assert_eq!((reply.code, reply.stdout.as_str()), (1, ""), "refused: {reply}");
    for path in
        ["pods", "metrics", "run/neighbour/good/main?cmd=id", "containerLogs/neighbour/good/main", "exec/neighbour/good/main?command=id"]
    {
        let url = format!("https://10.244.0.1:10250/{path}");
        for (token, wanted) in [("", "Unauthorized"), ("nonsense", "Unauthorized"), ("mallorys-token", "Forbidden (user=mallory, ")] {
            let header = format!("Authorization: Bearer {token}");
            let reply = world.cluster.net.run("curl", &["-sSk", "--max-time", "10", "-H", &header, "-w", "%{http_code}", &url]);
            // The node has no such path, and says so to whoever is authenticated.
            let wanted = if path.starts_with("run/") && token == "mallorys-token" { "404" } else { wanted };
            assert!(reply.stdout.starts_with(wanted), "{token} {path}: {reply}");
        }
    }
}

/// The API server's proxies connect to Pods and Services, and to no other address.
pub(super) fn the_servers_are_no_stepping_stones(world: &World<'_>) {
    assert_eq!(world.mallory.ok("get --raw /api/v1/namespaces/tenant/services/thief:http/proxy/"), "stolen\n", "its own is reached");
    for name in ["elsewhere", "localhost"] {
        let host = if name == "localhost" { "localhost" } else { "kubernetes.default.svc.cluster.local" };
        let yaml = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: tenant}}\nspec: {{type: ExternalName, externalName: {host}, ports: [{{port: 6443}}]}}"
        );
        world.mallory.with_input("create -f -", &yaml).ok();
        world.refused(&format!("get --raw /api/v1/namespaces/tenant/services/https:{name}:6443/proxy/version"), "no endpoints available");
    }
    for path in [
        "pods/..%2f..%2f..%2fnodes/proxy/",
        "pods/127.0.0.1:6443/proxy/",
        "pods/https:127.0.0.1:6443/proxy/",
        "services/thief:http/proxy/../../../../../neighbour/configmaps/secret",
        "services/thief:http/proxy/..%2f..%2f..%2f..%2f..%2fneighbour%2fconfigmaps%2fsecret",
        "services/kubernetes:443/proxy/version",
    ] {
        let ran = world.mallory.run(&["get", "--raw", &format!("/api/v1/namespaces/tenant/{path}")]);
        assert!(!ran.succeeded() && !ran.stdout.contains("is-not-for-mallory"), "{ran}");
    }
}
