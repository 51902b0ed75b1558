//! A node without room, whose control plane has a disk of its own: an image, the machine code of a module, and the files of a Pod find no
//! room. Each Pod says so, what runs goes on, nothing half-written stays, and all of them run once there is room.

use std::collections::BTreeSet;
use std::fs;

use serde_json::json;
use tests::{Cluster, Kubectl, Net, eventually};

use super::DISK_MEGABYTES;
use crate::kills::{WAITS, walk};
use crate::registry::{OPEN, Registry, is_not_pulled};

/// The bytes of the image and of the module: more than a disk has left of which [`FULL_PERCENT`] are used.
const BULK: usize = 4 << 20;
const FULL_PERCENT: u64 = 98;

#[test]
fn a_node_without_room_says_so_and_goes_on_when_it_has_some() {
    let mut nets = Net::joined(2).into_iter();
    let mut next = || nets.next().expect("a namespace");
    let mut server = Cluster::prepared(next(), &["server"]);
    server.start();
    let [url, token] = server.join_flags();
    let mut agent = Cluster::prepared_on_disk(next(), &["agent", "--node-name=a", &url, &token], DISK_MEGABYTES);
    agent.start();
    let kubectl = server.kubectl();
    kubectl.until_usable("default");
    let registry = Registry::start(&agent.net, OPEN, None);
    let bulky = format!("{OPEN}/bulky:v1");
    registry.push_shell(&agent.net, "bulky", BULK);
    agent.load(&["web.wasm"]);
    import_wide(&agent);
    run(&kubectl, "runs", "samples/web:latest");
    kubectl.until_ready("runs");
    let (shims, before) = (agent.shims(), stored(&agent));

    agent.disk().fill_to_percent(FULL_PERCENT);
    run(&kubectl, "pulls", &bulky);
    let message = is_not_pulled(&kubectl, "pulls", "no space left on the device while fetching ");
    assert!(message.contains(&bulky), "{message}");
    let images = agent.data_dir().join("images").canonicalize().expect("the store");
    assert!(message.contains(&format!("; free space on the disk of {}", images.display())), "{message}");
    run(&kubectl, "compiles", "it/wide:latest");
    let message = kubectl.until_waiting("compiles", "CreateContainerError", "compiling a WebAssembly module");
    assert!(message.contains("no space left on the device"), "{message}");
    agent.disk().fill();
    run(&kubectl, "starts", "samples/web:latest");
    eventually("the event of a Pod whose files have no room", || {
        let words = "get events --field-selector involvedObject.name=starts,reason=FailedCreatePodSandBox -o jsonpath={.items[*].message}";
        let messages = kubectl.ok(words);
        if messages.contains("No space left on device") { Ok(()) } else { Err(messages) }
    });
    for pod in ["pulls", "compiles", "starts"] {
        assert_eq!(kubectl.field(&format!("pod/{pod}"), "/status/phase"), "Pending", "{pod}");
    }
    eventually("nothing half-written stays", || {
        let changed: Vec<_> = stored(&agent).symmetric_difference(&before).cloned().collect();
        if changed.is_empty() { Ok(()) } else { Err(format!("{changed:?}")) }
    });
    assert!(agent.is_running(), "{}", agent.log());
    assert_eq!(agent.shims(), shims, "what runs, runs on");

    agent.disk().make_room();
    for pod in ["runs", "starts", "compiles", "pulls"] {
        kubectl.until_ready(pod);
        assert_eq!(kubectl.field(&format!("pod/{pod}"), "/status/containerStatuses/0/restartCount"), 0, "{pod}");
    }
    assert_eq!(kubectl.ok("logs compiles"), "began\n");
}

/// A module whose machine code has all its data.
fn import_wide(agent: &Cluster) {
    let work = tempfile::tempdir().expect("a directory");
    let file = work.path().join("wide.wasm");
    let data = format!("(memory (export \"memory\") 80) (data (i32.const 65536) \"{}\")", "x".repeat(BULK));
    let text = WAITS.replace("(memory (export \"memory\") 1)", &data);
    fs::write(&file, wat::parse_str(text).expect("a module")).expect("written");
    agent.skiff(&["image", "import", "it/wide:latest", &file.display().to_string()]).ok();
}

/// Makes a Pod of one container. A guest ignores the command.
fn run(kubectl: &Kubectl<'_>, name: &str, image: &str) {
    let container = json!({"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "command": ["sleep", "1000000"]});
    let spec = json!({"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0, "containers": [container]});
    kubectl.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()).ok();
}

/// What the node has of images and of machine code.
fn stored(agent: &Cluster) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for dir in ["images", "compiled"] {
        walk(&agent.data_dir().join(dir), &mut all);
    }
    all
}
