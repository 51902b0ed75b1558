//! What WASM guests get beyond a start: exit codes of components, configuration, a store, a log, proposals by a setting, files, sockets, and
//! what servers of `wasi:http` do.

mod proposals;
mod redis;
mod servers;
mod settings;
mod sockets;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tests::run::run;
use tests::{Cluster, Kubectl, eventually};

use crate::components;

/// Prints the file `app/text` of its first directory, then makes `tmp/made` and `app/made` there. Ends with the error number of the first,
/// and with 99 if the second succeeds.
const FILES: &str = "
    (import \"wasi_snapshot_preview1\" \"path_open\" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (import \"wasi_snapshot_preview1\" \"fd_read\" (func $read (param i32 i32 i32 i32) (result i32)))
    (import \"wasi_snapshot_preview1\" \"fd_write\" (func $write (param i32 i32 i32 i32) (result i32)))
    (data (i32.const 100) \"app/texttmp/madeapp/made\")
    (func (export \"_start\") (local $failed i32)
      (if (i32.eqz (call $open (i32.const 3) (i32.const 0) (i32.const 100) (i32.const 8) (i32.const 0)
            (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 40)))
        (then
          (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 1024))
          (drop (call $read (i32.load (i32.const 40)) (i32.const 0) (i32.const 1) (i32.const 8)))
          (i32.store (i32.const 4) (i32.load (i32.const 8)))
          (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))
      (local.set $failed (call $open (i32.const 3) (i32.const 0) (i32.const 108) (i32.const 8) (i32.const 1)
        (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 40)))
      (if (i32.eqz (call $open (i32.const 3) (i32.const 0) (i32.const 116) (i32.const 8) (i32.const 1)
            (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 40)))
        (then (call $exit (i32.const 99))))
      (call $exit (local.get $failed)))";

/// Prints the file `text` of its first directory, or ends with the error number of opening it.
const READS: &str = "
    (import \"wasi_snapshot_preview1\" \"path_open\" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (import \"wasi_snapshot_preview1\" \"fd_read\" (func $read (param i32 i32 i32 i32) (result i32)))
    (import \"wasi_snapshot_preview1\" \"fd_write\" (func $write (param i32 i32 i32 i32) (result i32)))
    (data (i32.const 100) \"text\")
    (func (export \"_start\") (local $failed i32)
      (local.set $failed (call $open (i32.const 3) (i32.const 1) (i32.const 100) (i32.const 4) (i32.const 0)
        (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 40)))
      (if (local.get $failed) (then (call $exit (local.get $failed))))
      (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 1024))
      (drop (call $read (i32.load (i32.const 40)) (i32.const 0) (i32.const 1) (i32.const 8)))
      (i32.store (i32.const 4) (i32.load (i32.const 8)))
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))";

#[test]
fn guests_get_what_they_are_made_for() {
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    cluster.load_samples();
    let work = tempfile::tempdir().expect("a directory");
    let import = |name: &str, bytes: &[u8]| {
        let file = work.path().join(format!("{name}.wasm"));
        fs::write(&file, bytes).expect("written");
        cluster.skiff(&["image", "import", &format!("guests/{name}:v1"), &file.display().to_string()]).ok();
    };
    let exits = components::command(&wat::parse_str(EXITS).expect("a module"), "");
    import("exits", &exits);
    import("interfaces", &components::interfaces());
    import("later", &async_command());
    import("service", &components::service());
    import("draft", &wat::parse_str(DRAFT).expect("a component"));
    import("reads", &module(READS));
    import("fetches", &settings::fetches());
    import("stores", &redis::image());
    import("counts", &module(settings::COUNTS));
    proposals::import(&import);
    servers::import(&import);
    sockets::import(&import);
    let (files, server) = (module(FILES), components::http());
    import("files", &files);
    let import_with_files = |name: &str, programs: &[(&str, &[u8])]| {
        let image = image_with_files(work.path(), name, programs);
        cluster.skiff(&["image", "import", &format!("guests/{name}:v1"), &image.display().to_string()]).ok();
    };
    import_with_files("image", &[("run", &files)]);
    import_with_files("server", &[("run", &server), ("exits", &exits)]);

    let servers = servers::Servers::start(&cluster, &kubectl);
    exit_codes_of_components_arrive(&kubectl);
    components_of_wasi_0_3_run(&kubectl);
    values_of_config_maps_and_secrets_are_configuration(&kubectl);
    files_of_root_need_a_group(&kubectl);
    proposals::proposals_are_on_or_named(&kubectl);
    redis::a_guest_keeps_its_data_in_redis(&cluster, &kubectl);
    settings::settings_are_those_of_the_class_and_the_pod(&kubectl);
    sockets::sockets_reach_the_hosts_of_the_setting(&kubectl);
    servers.are_as_they_are_set();
    files_of_an_image_are_the_guests_root(&kubectl);
    a_volume_may_be_the_guests_root(&kubectl);
    images_are_volumes(&cluster, &kubectl);
    further_programs_run_in_a_container(&kubectl, work.path());
    proposals::a_policy_forbids_them(&kubectl);
}

const EXITS: &str = r#"(module (import "wasi:cli/exit@0.2.12" "exit-with-code" (func $exit (param i32)))
    (func (export "wasi:cli/run@0.2.12#run") (result i32) (call $exit (i32.const 4)) (i32.const 0)))"#;

/// A preview 1 module that can call `$exit`.
fn module(rest: &str) -> Vec<u8> {
    let exit = r#"(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))"#;
    // Imports come first.
    let (imports, rest) = rest.split_at(rest.find("(data").unwrap_or(0));
    wat::parse_str(format!("(module {exit} {imports} (memory (export \"memory\") 1) {rest})")).expect("a module")
}

/// A `docker save` archive of an image with programs, a text and a directory for all users. It runs the program `run`.
fn image_with_files(work: &Path, name: &str, programs: &[(&str, &[u8])]) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let work = work.join(name);
    let root = work.join("root");
    for (dir, mode) in [("app", 0o755), ("tmp", 0o1777)] {
        fs::create_dir_all(root.join(dir)).expect("made");
        fs::set_permissions(root.join(dir), fs::Permissions::from_mode(mode)).expect("set");
    }
    for (program, bytes) in programs {
        fs::write(root.join(format!("app/{program}.wasm")), bytes).expect("written");
    }
    fs::write(root.join("app/text"), "a text of the image\n").expect("written");
    let tar = |dir: &Path, archive: &str, files: &[&str]| {
        run(Command::new("tar").arg("-C").arg(dir).arg("-cf").arg(work.join(archive)).args(files), None).ok();
    };
    tar(&root, "layer.tar", &["app", "tmp"]);
    let digest = run(Command::new("sha256sum").arg(work.join("layer.tar")), None).ok();
    let config = json!({
        "architecture": "wasm", "os": "wasip1", "config": {"Entrypoint": ["/app/run.wasm"], "WorkingDir": "/app"},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", digest.split(' ').next().expect("a digest"))]},
    });
    fs::write(work.join("config.json"), config.to_string()).expect("written");
    let manifest = json!([{"Config": "config.json", "RepoTags": ["x:y"], "Layers": ["layer.tar"]}]);
    fs::write(work.join("manifest.json"), manifest.to_string()).expect("written");
    tar(&work, "image.tar", &["config.json", "manifest.json", "layer.tar"]);
    work.join("image.tar")
}

/// A Pod of one container, which more is added to.
pub fn pod(name: &str, image: &str, annotations: Value, container: Value) -> Value {
    let mut main = json!({"name": "main", "image": format!("guests/{image}:v1"), "imagePullPolicy": "Never"});
    for (field, value) in container.as_object().expect("fields") {
        main[field] = value.clone();
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
        "spec": {"restartPolicy": "Never", "automountServiceAccountToken": false, "containers": [main]},
    })
}

/// Waits until the Pod has ended, its container `main` with that code; returns the log of that container.
#[track_caller]
pub fn ends_with(kubectl: &Kubectl<'_>, name: &str, code: i32) -> String {
    let object = format!("pod/{name}");
    kubectl.until(&object, "/status/phase", if code == 0 { "Succeeded" } else { "Failed" });
    let status = kubectl.container(name, "main");
    let log = kubectl.ok(&format!("logs {name} -c main"));
    assert_eq!(status["state"]["terminated"]["exitCode"], code, "{name}: {status} {log}");
    log
}

/// Waits until the Pod has failed because its container did not start.
#[track_caller]
fn does_not_start(kubectl: &Kubectl<'_>, name: &str, words: &str) {
    kubectl.until(&format!("pod/{name}"), "/status/phase", "Failed");
    let status = kubectl.container(name, "main");
    let ended = &status["state"]["terminated"];
    assert_eq!((&ended["reason"], &status["ready"]), (&json!("StartError"), &json!(false)), "{name}: {status}");
    assert!(ended["message"].as_str().is_some_and(|message| message.contains(words)), "{name}: {status}");
}

fn exit_codes_of_components_arrive(kubectl: &Kubectl<'_>) {
    kubectl.apply(&pod("exits", "exits", json!({}), json!({})).to_string()).ok();
    ends_with(kubectl, "exits", 4);
}

/// What a component of a draft of WASI 0.3 imports.
const DRAFT: &str =
    r#"(component (import "wasi:cli/environment@0.3.0-rc-2026-01-06" (instance (export "get-arguments" (func (result (list string)))))))"#;

/// Writes two lines, the second one after it has returned an error.
fn async_command() -> Vec<u8> {
    let text = include_str!("../../runtimes/wasmtime/tests/guests/async-command.wat").replace("RESULT", "1");
    let core = wat::parse_str(text).expect("a module");
    components::async_command(&core, "cli/stdout@0.3.0 cli/exit@0.3.0 clocks/monotonic-clock@0.3.0")
}

fn components_of_wasi_0_3_run(kubectl: &Kubectl<'_>) {
    for image in ["later", "draft"] {
        kubectl.apply(&pod(image, image, json!({}), json!({})).to_string()).ok();
    }
    let probe = json!({"httpGet": {"port": 8080, "path": "/wait"}});
    kubectl.apply(&pod("service", "service", json!({}), json!({"readinessProbe": probe, "livenessProbe": probe})).to_string()).ok();
    assert_eq!(ends_with(kubectl, "later", 1), "at first\nand later\n");
    kubectl.until_waiting("draft", "CreateContainerError", "wasi:cli/environment@0.3.0-rc-2026-01-06");
    kubectl.until_ready("service");
    let get = |path: &str| kubectl.run(&["get", "--raw", &format!("/api/v1/namespaces/default/pods/service:8080/proxy{path}")]);
    assert_eq!(get("/hello").ok(), "hello from 0.3 1\n");
    assert!(get("/trap").fails().contains("internal server error"));
    let log = || kubectl.ok("logs service");
    assert!(log().contains("request failed: ") && log().contains("wasm `unreachable` instruction executed"), "{}", log());
    // The answer is whole, and its guest fails afterwards.
    assert_eq!(get("/late").ok(), "hello from 0.3 1\n");
    eventually("the failure after the answer is logged", || {
        let log = log();
        if log.contains("request failed: after its answer had begun: ") { Ok(()) } else { Err(log) }
    });
    kubectl.ok("delete pod service --wait=false");
}

fn values_of_config_maps_and_secrets_are_configuration(kubectl: &Kubectl<'_>) {
    kubectl.ok("create configmap settings --from-literal=COLOUR=green");
    kubectl.ok("create secret generic keys --from-literal=colour=blue");
    let from_map = json!({"envFrom": [{"configMapRef": {"name": "settings"}}]});
    kubectl.apply(&pod("from-map", "interfaces", json!({}), from_map).to_string()).ok();
    let from_secret = json!({"env": [{"name": "COLOUR", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "colour"}}}]});
    kubectl.apply(&pod("from-secret", "interfaces", json!({}), from_secret).to_string()).ok();
    // What a Secret has is no configuration of a container that does not name it: step 1 finds nothing.
    kubectl.apply(&pod("without", "interfaces", json!({}), json!({})).to_string()).ok();
    assert_eq!(ends_with(kubectl, "from-map", 0), "[info] config: green\n[warn] keyvalue: keyvalue\n");
    assert_eq!(ends_with(kubectl, "from-secret", 0), "[info] config: blue\n[warn] keyvalue: keyvalue\n");
    ends_with(kubectl, "without", 1);
}

/// A guest is never root: it reads a Secret's file that is for its owner alone if the Pod has a group for files.
fn files_of_root_need_a_group(kubectl: &Kubectl<'_>) {
    for (name, security) in [("secret-of-root", json!({})), ("secret-of-group", json!({"fsGroup": 3000}))] {
        let mut reader = pod(name, "reads", json!({}), json!({"volumeMounts": [{"name": "keys", "mountPath": "/keys"}]}));
        let source = json!({"secretName": "keys", "defaultMode": 0o400, "items": [{"key": "colour", "path": "text"}]});
        reader["spec"]["volumes"] = json!([{"name": "keys", "secret": source}]);
        reader["spec"]["securityContext"] = security;
        kubectl.apply(&reader.to_string()).ok();
    }
    // WASI's EACCES.
    assert_eq!(ends_with(kubectl, "secret-of-root", 2), "");
    assert_eq!(ends_with(kubectl, "secret-of-group", 0), "blue");
}

fn files_of_an_image_are_the_guests_root(kubectl: &Kubectl<'_>) {
    kubectl.apply(&pod("files", "image", json!({}), json!({})).to_string()).ok();
    let read_only = json!({"securityContext": {"readOnlyRootFilesystem": true}});
    kubectl.apply(&pod("files-read-only", "image", json!({}), read_only).to_string()).ok();
    assert_eq!(ends_with(kubectl, "files", 0), "a text of the image\n");
    // WASI's EPERM: the directory is read-only for the guest.
    assert_eq!(ends_with(kubectl, "files-read-only", 63), "a text of the image\n");
    // A working directory that the image does not have.
    kubectl.apply(&pod("files-elsewhere", "image", json!({}), json!({"workingDir": "/elsewhere"})).to_string()).ok();
    does_not_start(kubectl, "files-elsewhere", "the working directory /elsewhere does not exist in the container");
}

/// Programs beside the container's own run in it: for `kubectl exec`, probes and hooks.
fn further_programs_run_in_a_container(kubectl: &Kubectl<'_>, work: &Path) {
    let programs = [
        ("echo", include_str!("../../runtimes/wasmtime/tests/guests/echo.wat")),
        ("cat", include_str!("../../runtimes/wasmtime/tests/guests/cat.wat")),
        ("inside", include_str!("../../runtimes/wasmtime/tests/guests/inside.wat")),
    ];
    let files = programs.map(|(name, text)| {
        let file = work.join(format!("{name}.wasm"));
        fs::write(&file, wat::parse_str(text).expect("a module")).expect("written");
        format!("--from-file={}", file.display())
    });
    kubectl.ok(&format!("create configmap programs {}", files.join(" ")));
    let server = |name: &str, probe: &[&str]| {
        let container = json!({
            "image": "samples/web:latest", "volumeMounts": [{"name": "programs", "mountPath": "/programs"}],
            "readinessProbe": {"exec": {"command": probe}, "periodSeconds": 1, "timeoutSeconds": 10},
        });
        let mut pod = pod(name, "web", json!({}), container);
        pod["spec"]["volumes"] = json!([{"name": "programs", "configMap": {"name": "programs"}}]);
        kubectl.apply(&pod.to_string()).ok();
    };
    server("probed", &["/programs/echo.wasm", "ok"]);
    server("unready", &["/programs/inside.wasm"]);
    kubectl.ok("wait --for=condition=Ready pod/probed --timeout=60s");
    assert_eq!(kubectl.ok("exec probed -- /programs/echo.wasm a b"), "a b\n");
    assert_eq!(kubectl.with_input("exec -i probed -- /programs/cat.wasm", "hi").ok(), "hi");
    let failed = kubectl.fails("exec probed -- /programs/inside.wasm");
    assert_eq!(failed, "command terminated with exit code 7\n");
    let absent = kubectl.fails("exec probed -- /nosuch.wasm");
    assert!(absent.contains("exec: \"/nosuch.wasm\": no such file or directory"), "{absent}");
    eventually("the probe fails", || {
        let events = kubectl.ok("get events --field-selector involvedObject.name=unready,reason=Unhealthy");
        if events.contains("Readiness probe failed: inside") { Ok(()) } else { Err(events) }
    });
}

/// The files of an image are a volume of Linux containers and of guests. Nobody writes there or runs a program of it.
fn images_are_volumes(cluster: &Cluster, kubectl: &Kubectl<'_>) {
    let of_image = |name: &str, image: &str| json!({"name": name, "image": {"reference": image, "pullPolicy": "Never"}});
    let mut guest = pod("image-root", "files", json!({}), json!({"volumeMounts": [{"name": "files", "mountPath": "/"}]}));
    guest["spec"]["volumes"] = json!([of_image("files", "guests/image:v1")]);
    kubectl.apply(&guest.to_string()).ok();
    assert_eq!(ends_with(kubectl, "image-root", 63), "a text of the image\n");

    let commands = "cat /data/app/text /sub/text; touch /data/app/made; /tools/bin/busybox true; echo ended with $?; sleep 1000";
    let container = json!({
        "image": "samples/tools:latest", "command": ["sh", "-c", commands],
        "volumeMounts": [
            {"name": "files", "mountPath": "/data"}, {"name": "files", "mountPath": "/sub", "subPath": "app"},
            {"name": "tools", "mountPath": "/tools"},
        ],
    });
    let mut linux = pod("image-volumes", "files", json!({}), container);
    linux["spec"]["terminationGracePeriodSeconds"] = json!(0);
    linux["spec"]["volumes"] = json!([of_image("files", "guests/image:v1"), of_image("tools", "samples/tools:latest")]);
    kubectl.apply(&linux.to_string()).ok();
    kubectl.until_ready("image-volumes");
    let log = eventually("the last line", || {
        let log = kubectl.ok("logs image-volumes");
        if log.contains("ended with") { Ok(log) } else { Err(log) }
    });
    assert!(log.starts_with("a text of the image\na text of the image\n"), "{log}");
    assert!(log.contains("Read-only file system") && log.contains("Permission denied") && log.contains("ended with 126"), "{log}");
    let mounts = cluster.data_dir().join("images/mounts");
    let of_volumes = || {
        let keys = fs::read_dir(&mounts).expect("mounts").map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        keys.filter(|key| key.starts_with("volumes_")).collect::<Vec<_>>()
    };
    eventually("the volume of the ended Pod is free", || if of_volumes().len() == 1 { Ok(()) } else { Err(of_volumes().join(" ")) });
    kubectl.ok("delete pod image-root image-volumes --timeout=60s");
    eventually("the volumes' layers are free", || if of_volumes().is_empty() { Ok(()) } else { Err(of_volumes().join(" ")) });

    for (name, image, reason, words) in [
        ("image-missing", "guests/nothing:v1", "ErrImageNeverPull", "is not present with pull policy of Never"),
        ("image-module", "guests/exits:v1", "CreateContainerError", "a WebAssembly module without files"),
    ] {
        let mut broken = linux.clone();
        broken["metadata"]["name"] = json!(name);
        broken["spec"]["volumes"][0] = of_image("files", image);
        kubectl.apply(&broken.to_string()).ok();
        kubectl.until_waiting(name, reason, words);
        kubectl.ok(&format!("delete pod {name} --timeout=60s"));
    }
}

/// The guest's files are in the volume, where a Linux container of the same Pod has them.
fn a_volume_may_be_the_guests_root(kubectl: &Kubectl<'_>) {
    let mut both = pod("root", "files", json!({}), json!({"volumeMounts": [{"name": "files", "mountPath": "/"}]}));
    let prepare = json!({
        "name": "prepare", "image": "samples/tools:latest", "imagePullPolicy": "Never",
        "command": ["sh", "-c", "mkdir /v/app /v/tmp && chmod 1777 /v/tmp && echo of the volume > /v/app/text"],
        "volumeMounts": [{"name": "files", "mountPath": "/v"}],
    });
    let spec = &mut both["spec"];
    spec["initContainers"] = json!([prepare]);
    spec["volumes"] = json!([{"name": "files", "emptyDir": {}}]);
    kubectl.apply(&both.to_string()).ok();
    assert_eq!(ends_with(kubectl, "root", 0), "of the volume\n");
}
