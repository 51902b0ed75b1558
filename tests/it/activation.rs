//! A Deployment behind a Service that runs while it is used: no Pod without connections, one for the first connection, which waits
//! for it, and more under load.

mod requests;

use std::net::TcpStream;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tests::run::run;
use tests::{Cluster, Kubectl, eventually, eventually_within};

const WEB: &str = include_str!("activation/web.yaml");
/// A Pod of the sample starts within a second; the machine may be busy.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// The average of new connections reaches back fifteen seconds, and is reported every five.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(60);

/// Runs curl in the node's namespace: the status and the body of the answer.
fn curl(cluster: &Cluster, url: &str) -> (Duration, String) {
    let began = Instant::now();
    let ran = run(&mut curl_command(cluster, url), None);
    (began.elapsed(), if ran.succeeded() { ran.stdout } else { ran.to_string() })
}

fn spawn_curl(cluster: &Cluster, url: &str) -> JoinHandle<String> {
    let mut command = curl_command(cluster, url);
    std::thread::spawn(move || String::from_utf8_lossy(&command.output().expect("curl runs").stdout).into_owned())
}

/// The answer goes to its output, with the status behind it.
fn curl_command(cluster: &Cluster, url: &str) -> Command {
    let mut command = cluster.net.command("curl");
    command.args(["-sS", "--noproxy", "*", "--max-time", "60", "-w", " %{http_code}", url]);
    command
}

fn until_nothing_runs(kubectl: &Kubectl<'_>) {
    eventually_within(FORGOTTEN_WITHIN, "no Pod of web", || {
        let pods = kubectl.ok("get pods -l app=web -o name");
        let replicas = kubectl.field("deployment/web", "/spec/replicas");
        if pods.is_empty() && replicas == 0 { Ok(()) } else { Err(format!("{replicas} {pods}{}", kubectl.ok("describe so web"))) }
    });
}

#[test]
fn a_web_server_runs_while_it_is_used() {
    let flags = ["--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-downscale-stabilization=2s"];
    let cluster = Cluster::up_with(&flags);
    let kubectl = cluster.kubectl();
    kubectl.ok("apply -f samples/quickstart/tools.yaml");
    kubectl.apply(WEB).ok();
    kubectl.until_ready("tools");
    kubectl.ok("wait --for=condition=Ready=true so/web --timeout=60s");
    until_nothing_runs(&kubectl);
    let ip = kubectl.field("service/web", "/spec/clusterIP").as_str().expect("a cluster IP").to_owned();

    // From the node, from a Pod, and from the node port: the first request waits and is answered.
    let (elapsed, answer) = curl(&cluster, &format!("http://{ip}/first"));
    assert_eq!(answer, "Hello from WebAssembly! You asked for /first\n 200", "after {elapsed:?}");
    assert!(elapsed < ANSWERED_WITHIN, "{elapsed:?}");
    eprintln!("the first request was answered after {elapsed:?}");
    let reason = "get events --field-selector=involvedObject.name=web,reason=KEDAScaleTargetActivated -o jsonpath={.items[*].message}";
    let events = eventually("the event", || Some(kubectl.ok(reason)).filter(|text| !text.is_empty()).ok_or_else(String::new));
    assert!(events.contains("Scaled apps/v1.Deployment default/web from 0 to 1, triggered by s0-connections-web"), "{events}");
    until_nothing_runs(&kubectl);
    assert_eq!(kubectl.ok("exec tools -- wget -qO- http://web/pod"), "Hello from WebAssembly! You asked for /pod\n");
    until_nothing_runs(&kubectl);
    let several: Vec<_> = (0..12)
        .map(|number| {
            let address = if number % 2 == 0 { ip.clone() } else { format!("{}:30080", cluster.net.ip) };
            (number, spawn_curl(&cluster, &format!("http://{address}/{number}")))
        })
        .collect();
    for (number, answer) in several {
        let answer = answer.join().expect("no panic");
        assert_eq!(answer, format!("Hello from WebAssembly! You asked for /{number}\n 200"));
    }

    // Many connections a second are more than one Pod's share.
    let deadline = Instant::now() + Duration::from_secs(90);
    let mut replicas = 0;
    while replicas != 3 {
        assert!(Instant::now() < deadline, "{replicas} replicas: {}", kubectl.ok("describe so,hpa"));
        for _ in 0..30 {
            let (_, answer) = curl(&cluster, &format!("http://{ip}/load"));
            assert!(answer.ends_with("/load\n 200"), "{answer}");
        }
        replicas = kubectl.field("deployment/web", "/spec/replicas").as_i64().unwrap_or_default();
    }
    until_nothing_runs(&kubectl);

    // Without a Pod in time, the answer says so.
    kubectl.ok("annotate so web autoscaling.keda.sh/paused-replicas=0");
    kubectl.ok("wait --for=condition=Paused=true so/web --timeout=60s");
    let (elapsed, answer) = curl(&cluster, &format!("http://{ip}/never"));
    assert_eq!(answer, "no Pod of Service default/web was ready within 30 s\n 503", "after {elapsed:?}");
    kubectl.ok("delete so web --timeout=60s");
    eventually("connections are refused at once again", || {
        let (_, answer) = curl(&cluster, &format!("http://{ip}/nobody"));
        if answer.contains("Failed to connect") || answer.contains("Could not connect") { Ok(()) } else { Err(answer) }
    });
}

/// A Service that its tenant marked, without anything behind it, and objects that name what is not the tenant's.
const TENANT: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: none, namespace: tenant, annotations: {skiff.internal/activated-by: none}}
spec:
  ports: [{port: 80}]
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: thief, namespace: tenant}
spec:
  scaleTargetRef: {name: thief}
  triggers: [{type: service-connections, metadata: {service: default/web}}]
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: second, namespace: tenant}
spec:
  scaleTargetRef: {name: second}
  triggers: [{type: service-connections, metadata: {service: web}}]
"#;

#[test]
fn a_tenant_gets_its_own_waits_and_nothing_else() {
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    kubectl.apply(WEB).ok();
    kubectl.ok("create namespace tenant");
    for name in ["thief", "second"] {
        kubectl.ok(&format!("create deployment {name} -n tenant --image=none --replicas=0"));
    }
    kubectl.apply(TENANT).ok();
    let failures = "get events -n tenant --field-selector=reason=KEDAScalerFailed -o jsonpath={.items[*].message}";
    for wanted in ["service \"default/web\" must be the name of a Service in the same namespace", "service tenant/web not found"] {
        eventually(wanted, || Some(kubectl.ok(failures)).filter(|events| events.contains(wanted)).ok_or_else(|| kubectl.ok(failures)));
    }
    until_nothing_runs(&kubectl);

    // As many connections as a Service may have.
    let ip = kubectl.ok("get service none -n tenant -o jsonpath={.spec.clusterIP}");
    let address = format!("{ip}:80").parse().expect("an address");
    let connect = move || (0..256).map(|_| TcpStream::connect_timeout(&address, Duration::from_secs(5)).expect("accepted")).collect();
    let flood: Vec<TcpStream> = cluster.net.enter(connect).join().expect("no panic");
    let reports = "get leases -n kube-node-lease -o jsonpath={.items[*].metadata.annotations}";
    eventually("all are reported", || {
        let reports = kubectl.ok(reports).replace('\\', "");
        if reports.contains(r#""tenant/none":{"waiting":256,"#) { Ok(()) } else { Err(reports) }
    });
    let (elapsed, answer) = curl(&cluster, &format!("http://{ip}/"));
    let wanted = "256 connections to Service tenant/none wait or have waited on this node, which are the most at once\n 503";
    assert_eq!(answer, wanted, "after {elapsed:?}");
    let web = kubectl.field("service/web", "/spec/clusterIP").as_str().expect("a cluster IP").to_owned();
    let (elapsed, answer) = curl(&cluster, &format!("http://{web}/others"));
    assert_eq!(answer, "Hello from WebAssembly! You asked for /others\n 200", "after {elapsed:?}");
    assert_eq!(kubectl.field("deployment/web", "/spec/replicas"), 1);
    let replicas = kubectl.ok("get deployments -n tenant -o jsonpath={.items[*].spec.replicas}");
    assert_eq!(replicas, "0 0", "the tenant's objects have no part in it");
    drop(flood);
}
