//! Images from a real registry. Pods pull WASM modules in all their forms and a Linux image, with and without
//! credentials; and the messages when an image cannot be pulled.

mod cut;
mod platform;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;
use tests::{Cluster, Kubectl, Net, cluster, eventually, run};

/// A registry without authentication.
pub(crate) const OPEN: &str = "127.0.0.1:5000";
/// A registry for `sailor` with `open sesame`.
pub(crate) const LOCKED: &str = "127.0.0.1:5001";
/// An address where nothing listens.
const NOBODY: &str = "127.0.0.1:5999";
/// `open sesame`, hashed with bcrypt.
pub(crate) const PASSWORDS: &str = "sailor:$2b$05$DlPx2SREEAGtdQj8iYlItuQGJ1YQUIxxH3zNwswYbUyO7fFHhXYYO\n";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Debian's docker-registry on the loopback of a namespace.
pub(crate) struct Registry {
    address: &'static str,
    /// What curl authenticates with.
    user: &'static [&'static str],
    dir: tempfile::TempDir,
    child: Child,
}

impl Registry {
    pub(crate) fn start(net: &Net, address: &'static str, passwords: Option<&str>) -> Self {
        let dir = tempfile::Builder::new().prefix("skit-registry-").tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let auth = passwords.map_or(String::new(), |text| {
            fs::write(at("passwords"), text).expect("written");
            format!("auth: {{htpasswd: {{realm: harbour, path: {}}}}}\n", at("passwords").display())
        });
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{address}'}}\n{auth}",
            at("data").display()
        );
        fs::write(at("config.yml"), config).expect("written");
        let mut command = net.command("docker-registry");
        let log = File::create(at("log")).expect("a file");
        command.arg("serve").arg(at("config.yml")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let user: &[&str] = if passwords.is_some() { &["--user", "sailor:open sesame"] } else { &[] };
        let registry = Self { address, user, child: command.spawn().expect("docker-registry is installed"), dir };
        eventually("the registry answers", || {
            let probe = net.run("curl", &["-sS", "-o", "/dev/null", &format!("http://{address}/v2/")]);
            if probe.succeeded() { Ok(()) } else { Err(probe.to_string()) }
        });
        registry
    }

    /// Stores a blob; returns its descriptor.
    #[track_caller]
    fn push_blob(&self, net: &Net, repository: &str, file: &Path, media_type: &str) -> serde_json::Value {
        let path = file.display().to_string();
        let digest = digest(file);
        let begin = format!("http://{}/v2/{repository}/blobs/uploads/", self.address);
        let location = self.curl(net, &["-X", "POST", "-o", "/dev/null", "-w", "%header{location}", &begin]);
        let location = format!("{}&digest={digest}", location.trim());
        let data = format!("@{path}");
        self.curl(net, &["-X", "PUT", "-H", "Content-Type: application/octet-stream", "--data-binary", &data, &location]);
        json!({"mediaType": media_type, "digest": digest, "size": file.metadata().expect("a file").len()})
    }

    /// Stores an image of one layer under a name.
    #[track_caller]
    pub(crate) fn push(&self, net: &Net, repository: &str, config: (&str, &serde_json::Value), layer: (&str, &Path)) {
        let (config_file, manifest_file) = (self.dir.path().join("config.json"), self.dir.path().join("manifest.json"));
        fs::write(&config_file, config.1.to_string()).expect("written");
        let config = self.push_blob(net, repository, &config_file, config.0);
        let layer = self.push_blob(net, repository, layer.1, layer.0);
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
        fs::write(&manifest_file, manifest.to_string()).expect("written");
        let (data, url) = (format!("@{}", manifest_file.display()), format!("http://{}/v2/{repository}/manifests/v1", self.address));
        self.curl(net, &["-X", "PUT", "-H", &format!("Content-Type: {MANIFEST}"), "--data-binary", &data, &url]);
    }

    #[track_caller]
    fn curl(&self, net: &Net, args: &[&str]) -> String {
        net.run("curl", &[&["-fsS"][..], self.user, args].concat()).ok()
    }

    /// Stores a module as an artifact in the CNCF's format.
    #[track_caller]
    pub(crate) fn push_wasm(&self, net: &Net, repository: &str, file: &str) {
        self.push_module(net, repository, &PathBuf::from(cluster::sample(file)));
    }

    #[track_caller]
    fn push_module(&self, net: &Net, repository: &str, file: &Path) {
        let config = ("application/vnd.wasm.config.v0+json", &json!({"architecture": "wasm", "os": "wasip1", "layerDigests": []}));
        self.push(net, repository, config, ("application/wasm", file));
    }

    /// Stores a Linux image of a shell, `sleep`, and a file of that many bytes.
    #[track_caller]
    pub(crate) fn push_shell(&self, net: &Net, repository: &str, bulk: usize) {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(root.path().join("bin")).expect("made");
        for program in ["sh", "sleep"] {
            fs::copy("/bin/busybox", root.path().join("bin").join(program)).expect("busybox is installed");
        }
        fs::write(root.path().join("bulk"), vec![b'x'; bulk]).expect("written");
        self.push_linux(net, repository, root.path());
    }

    /// Stores a Linux image of the files in a directory.
    #[track_caller]
    fn push_linux(&self, net: &Net, repository: &str, root: &Path) {
        let layer = self.dir.path().join("layer.tar");
        let diff_id = archive(root, ".", &layer);
        let config = json!({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [diff_id]}});
        let layer = ("application/vnd.oci.image.layer.v1.tar", layer.as_path());
        self.push(net, repository, ("application/vnd.oci.image.config.v1+json", &config), layer);
    }

    /// Copies the Linux sample with skopeo.
    #[track_caller]
    fn copy_tools(&self, net: &Net, credentials: Option<&str>) {
        let (from, to) = (format!("docker-archive:{}", cluster::sample("tools.tar")), format!("docker://{}/tools:v1", self.address));
        let mut args = vec!["--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"];
        args.extend(credentials.iter().flat_map(|credentials| ["--dest-creds", *credentials]));
        args.extend([from.as_str(), to.as_str()]);
        net.run("skopeo", &args).ok();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // The kill fails if the process has ended already. Wait for its end in both cases.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// A Pod with one container that runs once.
#[track_caller]
pub(crate) fn pod(kubectl: &Kubectl<'_>, name: &str, class: &str, image: &str, more: &str) {
    let yaml = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  runtimeClassName: {class}\n  restartPolicy: Never\n  \
         containers:\n    - name: main\n      image: {image}\n{more}"
    );
    kubectl.apply(&yaml).ok();
}

/// Waits until a Pod's image cannot be pulled; checks that the message contains the words, and returns it.
#[track_caller]
pub(crate) fn is_not_pulled(kubectl: &Kubectl<'_>, name: &str, words: &str) -> String {
    let message = waits_for(kubectl, name, &["ErrImagePull", "ImagePullBackOff"]);
    assert!(message.contains(words), "{name}: {message}");
    message
}

/// Like [`is_not_pulled`], and waits until the node backs off. The events contain the words, too.
#[track_caller]
pub(crate) fn backs_off(kubectl: &Kubectl<'_>, name: &str, words: &str) {
    is_not_pulled(kubectl, name, words);
    waits_for(kubectl, name, &["ImagePullBackOff"]);
    eventually(&format!("the events of {name}"), || {
        let events = kubectl.ok(&format!("events --for pod/{name}"));
        let wanted = ["Failed to pull image", "Back-off pulling image", words];
        if wanted.into_iter().all(|text| events.contains(text)) { Ok(()) } else { Err(events) }
    });
}

/// Waits until a Pod's container waits for one of the reasons; returns the message.
#[track_caller]
fn waits_for(kubectl: &Kubectl<'_>, name: &str, reasons: &[&str]) -> String {
    eventually(&format!("{name} waits for {reasons:?}"), || {
        let waiting = kubectl.field(&format!("pod/{name}"), "/status/containerStatuses/0/state/waiting");
        let found = waiting["reason"].as_str().unwrap_or_default();
        if reasons.contains(&found) { Ok(waiting["message"].as_str().unwrap_or_default().to_owned()) } else { Err(waiting.to_string()) }
    })
}

#[track_caller]
pub(crate) fn says(kubectl: &Kubectl<'_>, name: &str, text: &str) {
    kubectl.until(&format!("pod/{name}"), "/status/phase", "Succeeded");
    let log = kubectl.ok(&format!("logs {name}"));
    assert!(log.contains(text), "{name}: {log}");
}

/// An image in the form of a Linux image that holds a module: a layer and its configuration.
fn wasm_in_linux(dir: &Path) -> (serde_json::Value, PathBuf) {
    fs::copy(cluster::sample("hello.wasm"), dir.join("hello.wasm")).expect("copied");
    let layer = dir.join("layer.tar");
    let diff_id = archive(dir, "hello.wasm", &layer);
    let config = json!({
        "architecture": "wasm", "os": "wasip1",
        "config": {"Entrypoint": ["/hello.wasm"], "Env": ["FROM=the image"]},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    });
    (config, layer)
}

/// Makes an archive of a file or directory in a directory; returns its digest.
fn archive(dir: &Path, entry: &str, archive: &Path) -> String {
    run::run(Command::new("tar").arg("-C").arg(dir).arg("-cf").arg(archive).arg(entry), None).ok();
    digest(archive)
}

fn digest(file: &Path) -> String {
    let line = run::run(Command::new("sha256sum").arg(file), None).ok();
    format!("sha256:{}", line.split(' ').next().expect("a digest"))
}

/// The node reports an image under its digest and its tag, with its size. (Images of the same content are one, with five names at most.)
fn the_node_reports(kubectl: &Kubectl<'_>, name: &str) {
    let (digest, tag) = (format!("{OPEN}/{name}@sha256:"), format!("{OPEN}/{name}:v1"));
    eventually(&format!("the node reports {name}"), || {
        let nodes = kubectl.json("get nodes");
        let images = nodes["items"][0]["status"]["images"].as_array().cloned().unwrap_or_default();
        let is_it = |image: &serde_json::Value| {
            let names = || image["names"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
            let is_named = names().any(|name| name.starts_with(&digest)) && names().any(|name| name == tag);
            is_named && image["sizeBytes"].as_i64().is_some_and(|size| size > 0)
        };
        if images.iter().any(is_it) { Ok(()) } else { Err(format!("{images:?}")) }
    });
}

const ALWAYS: &str = "      imagePullPolicy: Always\n";

#[test]
fn pods_run_images_of_every_form_from_a_registry() {
    let cluster = Cluster::up_with(&["--insecure-registry", OPEN]);
    let (net, kubectl) = (&cluster.net, cluster.kubectl());
    let registry = Registry::start(net, OPEN, None);
    registry.copy_tools(net, None);
    registry.push_wasm(net, "cncf", "hello.wasm");
    let module = PathBuf::from(cluster::sample("hello.wasm"));
    let old_config = ("application/vnd.wasm.config.v1+json", &json!({}));
    registry.push(net, "older", old_config, ("application/vnd.wasm.content.layer.v1+wasm", &module));
    let (mut config, layer) = wasm_in_linux(registry.dir.path());
    for (name, entrypoint) in [("linux-style", "/hello.wasm"), ("wrong-path", "/app/hello.wasm")] {
        config["config"]["Entrypoint"] = json!([entrypoint]);
        let image_config = ("application/vnd.oci.image.config.v1+json", &config);
        registry.push(net, name, image_config, ("application/vnd.oci.image.layer.v1.tar", &layer));
    }
    let chart = ("application/vnd.cncf.helm.config.v1+json", &json!({"name": "chart"}));
    registry.push(net, "chart", chart, ("application/vnd.cncf.helm.chart.content.v1.tar+gzip", &layer));

    for name in ["cncf", "older", "linux-style"] {
        pod(&kubectl, name, "wasmtime", &format!("{OPEN}/{name}:v1"), "");
    }
    pod(&kubectl, "tools", "runc", &format!("{OPEN}/tools:v1"), "      command: [echo, from, the, registry]\n");
    for name in ["cncf", "older", "linux-style"] {
        says(&kubectl, name, "Hello from WebAssembly!");
    }
    says(&kubectl, "linux-style", "env: FROM=the image");
    says(&kubectl, "tools", "from the registry");

    the_node_reports(&kubectl, "tools");

    // A tag that changes: `Always` follows it, `IfNotPresent` does not.
    registry.push_wasm(net, "cncf", "lookup.wasm");
    pod(&kubectl, "stays", "wasmtime", &format!("{OPEN}/cncf:v1"), "      imagePullPolicy: IfNotPresent\n");
    says(&kubectl, "stays", "Hello from WebAssembly!");
    let args = "      args: [kubernetes.default.svc.cluster.local]\n";
    pod(&kubectl, "moves", "wasmtime", &format!("{OPEN}/cncf:v1"), &format!("{ALWAYS}{args}"));
    says(&kubectl, "moves", "kubernetes.default.svc.cluster.local: ");

    // The Pod's status says which images cannot be pulled, and which cannot be run.
    pod(&kubectl, "absent", "wasmtime", &format!("{OPEN}/cncf:absent"), "");
    pod(&kubectl, "unreachable", "wasmtime", &format!("{NOBODY}/x:v1"), "");
    pod(&kubectl, "chart", "wasmtime", &format!("{OPEN}/chart:v1"), "");
    pod(&kubectl, "wrong-path", "wasmtime", &format!("{OPEN}/wrong-path:v1"), "");
    for (name, image) in [("absent", "cncf:absent"), ("unreachable", "x:v1")] {
        backs_off(&kubectl, name, image);
    }
    eventually("the event that names what the image is", || {
        let events = kubectl.ok("events --for pod/chart");
        if events.contains("neither a WASM artifact nor a Linux image") { Ok(()) } else { Err(events) }
    });
    let words = format!("image \"{OPEN}/wrong-path:v1\" cannot run here: its entrypoint /app/hello.wasm is not in it");
    is_not_pulled(&kubectl, "wrong-path", &words);
    cut::images_that_lost_bytes_say_so(&cluster, &registry);
    platform::images_for_other_machines_say_so(net, &kubectl, &registry);

    // The commands of the image store, while the node runs.
    let name = format!("{OPEN}/older:v1");
    cluster.skiff(&["image", "rm", &name]).ok();
    assert!(!cluster.skiff(&["image", "list"]).ok().contains(&name));
    let id = cluster.skiff(&["image", "pull", "--insecure-registry", OPEN, &name]).ok();
    assert!(id.starts_with("sha256:"), "{id}");
    let imports = "\nWebAssembly module, a WASI preview 1 program; it imports wasi_snapshot_preview1\n";
    assert!(id.ends_with(imports), "{id}");
    assert!(cluster.skiff(&["image", "list"]).ok().contains(&name));
    let complaint = cluster.skiff(&["image", "pull", "--insecure-registry", OPEN, &format!("{OPEN}/older:absent")]).fails();
    assert!(complaint.contains("older:absent"), "{complaint}");
}

#[test]
fn a_registry_that_asks_who_is_there_gets_the_pull_secret() {
    let cluster = Cluster::up_with(&["--insecure-registry", LOCKED]);
    let (net, kubectl) = (&cluster.net, cluster.kubectl());
    let registry = Registry::start(net, LOCKED, Some(PASSWORDS));
    registry.copy_tools(net, Some("sailor:open sesame"));
    for (name, password) in [("right", "open sesame"), ("wrong", "open says me")] {
        let server = format!("--docker-server={LOCKED}");
        let password = format!("--docker-password={password}");
        kubectl.run(&["create", "secret", "docker-registry", name, &server, "--docker-username=sailor", &password]).ok();
    }
    let image = format!("{LOCKED}/tools:v1");
    let speaks = format!("{ALWAYS}      command: [echo, let, in]\n");
    pod(&kubectl, "nobody", "runc", &image, &speaks);
    pod(&kubectl, "wrong", "runc", &image, &format!("{speaks}  imagePullSecrets: [{{name: wrong}}]\n"));
    for name in ["nobody", "wrong"] {
        is_not_pulled(&kubectl, name, &image);
    }
    pod(&kubectl, "right", "runc", &image, &format!("{speaks}  imagePullSecrets: [{{name: right}}]\n"));
    says(&kubectl, "right", "let in");
}
