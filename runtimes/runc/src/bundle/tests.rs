use std::collections::BTreeMap;
use std::path::PathBuf;

use runtimes_battery::plain_spec;
use runtimes_contract::{Device, Mount, Resources, Sandbox, User, UserNamespace};

use super::*;

fn v1() -> Facts {
    Facts { cgroups: Some(Mode::Hybrid), limits_swap: true, devices: Vec::new(), own_devices: Vec::new(), target: None }
}

fn spec() -> ContainerSpec {
    ContainerSpec { cgroup: "skiff/pod1/web".into(), content: Content::Linux { rootfs: "/run/rootfs".into() }, ..plain_spec("web") }
}

/// The spec as text, without the seccomp profile, which has a test of its own.
fn text(spec: &ContainerSpec, facts: &Facts) -> String {
    let mut value = serde_json::to_value(bundle(spec, facts).unwrap()).unwrap();
    if value["linux"]["seccomp"].is_object() {
        value["linux"]["seccomp"] = json!("default");
    }
    // oci-spec keeps capabilities as a set, in no order.
    for list in value["process"]["capabilities"].as_object_mut().unwrap().values_mut() {
        list.as_array_mut().unwrap().sort_by_key(|name| name.to_string());
    }
    serde_json::to_string_pretty(&sorted(value)).unwrap()
}

/// Keys in order, whatever features serde_json was built with.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, sorted(value))).collect::<BTreeMap<_, _>>().into_iter().collect(),
        Value::Array(list) => list.into_iter().map(sorted).collect(),
        other => other,
    }
}

#[test]
fn a_plain_container() {
    insta::assert_snapshot!(text(&spec(), &v1()));
}

#[test]
fn a_container_of_a_pod_with_everything() {
    let mut full = spec();
    full.sandbox = Sandbox {
        network: Some("/run/netns/a".into()),
        ipc: Some("/run/ipc/a".into()),
        uts: Some("/run/uts/a".into()),
        user: None,
        hostname: "web-0".into(),
    };
    full.args = vec!["nginx".into(), "-g".into(), "daemon off;".into()];
    full.env = vec![("PATH".into(), "/bin".into()), ("A".into(), "b=c".into())];
    full.working_dir = "/srv".into();
    full.mounts = vec![
        Mount::new("/data/hosts", "/etc/hosts", false),
        Mount::new("/data/config", "/config", true),
        Mount::new("/data/shm", "/dev/shm/", false),
    ];
    full.user = User { uid: Some(101), gid: Some(102), groups: vec![5, 6] };
    full.resources = Resources {
        memory_limit_bytes: Some(64 << 20),
        cpu_shares: Some(512),
        cpu_quota_us: Some(50_000),
        cpu_period_us: Some(100_000),
        pids_max: Some(100),
        cpuset_cpus: Some("0-3,8".into()),
        // The group has this limit before runc.
        huge_pages: Some([(2 << 20, 8 << 20)].into()),
    };
    full.security = Security {
        read_only_root: true,
        no_new_privileges: true,
        capabilities_add: vec!["NET_BIND_SERVICE".into()],
        capabilities_drop: vec!["ALL".into()],
        ..Security::default()
    };
    full.tty = true;
    insta::assert_snapshot!(text(&full, &Facts { cgroups: Some(Mode::V2), ..v1() }));
}

#[test]
fn a_container_sees_its_own_processes_or_those_that_its_spec_names() {
    let made = |processes: Processes, target: Option<ProcessRef>| {
        let oci = bundle(&ContainerSpec { processes, ..spec() }, &Facts { target, ..v1() }).map(|oci| serde_json::to_value(oci).unwrap());
        oci.map(|oci| {
            let namespaces = oci["linux"]["namespaces"].as_array().unwrap().clone();
            (namespaces.into_iter().find(|one| one["type"] == "pid"), oci["annotations"].clone())
        })
    };
    let target = ProcessRef { pid: 77, start_ticks: 5, boot_id: "b".into() };
    let of_other = Processes::OfContainer(runtimes_contract::ContainerId("app".into()));
    assert_eq!(made(Processes::Own, None).unwrap(), (Some(json!({ "type": "pid" })), json!(null)));
    assert_eq!(made(Processes::OfNode, None).unwrap(), (None, json!(null)));
    let joined = Some(json!({ "type": "pid", "path": "/proc/77/ns/pid" }));
    assert_eq!(made(of_other.clone(), Some(target)).unwrap(), (joined, json!({ "dev.skiff.target": "77 5 b" })));
    assert!(matches!(made(of_other, None), Err(RuntimeError::Unsupported(_))), "never a namespace of its own instead");
}

#[test]
fn a_privileged_container() {
    let mut privileged = spec();
    privileged.security.privileged = true;
    let devices = vec![json!({ "path": "/dev/kvm", "type": "c", "major": 10, "minor": 232, "fileMode": 432, "uid": 0, "gid": 0 })];
    insta::assert_snapshot!(text(&privileged, &Facts { devices, ..v1() }));
}

#[test]
fn devices_of_the_spec_are_nodes_with_rules() {
    let object =
        |path: &str, minor: u32| json!({ "path": path, "type": "b", "major": 7, "minor": minor, "fileMode": 384, "uid": 0, "gid": 6 });
    let device = |target: &str, access: &str| Device { source: "/dev/loop0".into(), target: target.into(), access: access.to_owned() };
    let mut spec = ContainerSpec { devices: vec![device("/dev/xvda", "r"), device("/dev/xvdb", "rwm")], ..spec() };
    let own_devices = vec![object("/dev/xvda", 0), object("/dev/xvdb", 1)];
    let facts = Facts { devices: vec![object("/dev/loop5", 5), object("/dev/xvda", 9)], own_devices, ..v1() };
    let linux = |spec: &ContainerSpec| serde_json::to_value(bundle(spec, &facts).unwrap()).unwrap()["linux"].clone();
    let plain = linux(&spec);
    assert_eq!(plain["devices"], json!([object("/dev/xvda", 0), object("/dev/xvdb", 1)]));
    let rule = |minor: u32, access: &str| json!({ "allow": true, "type": "b", "major": 7, "minor": minor, "access": access });
    assert_eq!(plain["resources"]["devices"], json!([{ "allow": false, "access": "rwm" }, rule(0, "r"), rule(1, "rwm")]));
    spec.security.privileged = true;
    let privileged = linux(&spec);
    assert_eq!(privileged["devices"], json!([object("/dev/loop5", 5), object("/dev/xvda", 0), object("/dev/xvdb", 1)]));
    assert_eq!(privileged["resources"]["devices"], json!([{ "allow": true, "access": "rwm" }]));
}

#[test]
fn a_profile_of_the_node_replaces_the_default_one() {
    let filter = |seccomp: Seccomp, privileged: bool| {
        let mut spec = spec();
        spec.security = Security { seccomp, privileged, ..Security::default() };
        bundle(&spec, &v1()).map(|oci| serde_json::to_value(oci).unwrap()["linux"]["seccomp"].clone())
    };
    let own = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["mkdir"], "action": "SCMP_ACT_ERRNO" }] });
    let applied = filter(Seccomp::Profile(own.clone()), false).unwrap();
    assert_eq!((&applied["defaultAction"], &applied["syscalls"][0]["names"]), (&own["defaultAction"], &own["syscalls"][0]["names"]));
    assert_eq!(filter(Seccomp::Unconfined, false).unwrap(), serde_json::Value::Null);
    assert_eq!(filter(Seccomp::Profile(own), true).unwrap(), serde_json::Value::Null);
    assert!(filter(Seccomp::RuntimeDefault, false).unwrap()["syscalls"].is_array());
    assert!(
        filter(Seccomp::Profile(json!({ "defaultAction": "NONSENSE" })), false).is_err(),
        "what runc does not understand is found here"
    );
}

#[test]
fn every_process_of_a_container_has_its_app_armor_profile() {
    let mut confined = spec();
    confined.security.app_armor = Some("skiff-default".into());
    let exec = ExecSpec { args: vec!["sh".into()], stdin: false, tty: false, outlives_session: false };
    for (spec, profile) in [(&confined, json!("skiff-default")), (&spec(), json!(null))] {
        let first = serde_json::to_value(bundle(spec, &v1()).unwrap()).unwrap();
        let further = serde_json::to_value(exec_process(spec, &exec).unwrap()).unwrap();
        assert_eq!((&first["process"]["apparmorProfile"], &further["apparmorProfile"]), (&profile, &profile));
    }
}

#[test]
fn the_seccomp_profile_follows_the_capabilities() {
    let names = |spec: &ContainerSpec| {
        let oci = serde_json::to_value(bundle(spec, &v1()).unwrap()).unwrap();
        let calls = oci["linux"]["seccomp"]["syscalls"].as_array().unwrap().clone();
        let allowed = calls.iter().filter(|call| call["action"] == "SCMP_ACT_ALLOW");
        allowed.flat_map(|call| call["names"].as_array().unwrap().clone()).map(|name| name.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let has = |names: &[String], wanted: &str| names.iter().any(|name| name == wanted);
    let plain = names(&spec());
    assert!(has(&plain, "read") && has(&plain, "chroot") && has(&plain, "clone") && !has(&plain, "mount") && !has(&plain, "bpf"));
    let mut admin = spec();
    admin.security.capabilities_add = vec!["SYS_ADMIN".into()];
    let admin = names(&admin);
    assert!(has(&admin, "mount") && has(&admin, "setns") && !has(&admin, "init_module"));
}

#[test]
fn what_runc_would_not_understand_is_rejected() {
    let mut odd = spec();
    odd.security.capabilities_add = vec!["FLY".into()];
    let error = bundle(&odd, &v1()).unwrap_err();
    assert!(matches!(&error, RuntimeError::Unsupported(_)) && error.to_string().contains("CAP_FLY"), "{error}");
    let wasm = Content::Wasm { module: PathBuf::from("/m.wasm"), digest: "sha256:0".into() };
    assert!(matches!(bundle(&ContainerSpec { content: wasm, ..spec() }, &v1()), Err(RuntimeError::BadContent(_))));
}

#[test]
fn an_exec_is_the_containers_process_with_other_arguments() {
    let exec = ExecSpec { args: vec!["sh".into()], stdin: true, tty: true, outlives_session: false };
    let process = serde_json::to_value(exec_process(&spec(), &exec).unwrap()).unwrap();
    assert_eq!((&process["args"], &process["terminal"]), (&json!(["sh"]), &json!(true)));
    assert_eq!(process["capabilities"]["bounding"].as_array().unwrap().len(), 14);
    assert!(process["env"].as_array().unwrap().contains(&json!("TERM=xterm")));
}

#[test]
fn propagation_needs_a_root_that_lets_it_through() {
    use runtimes_contract::Propagation;
    let with = |all: &[Propagation]| {
        let mut spec = spec();
        spec.mounts = all.iter().map(|propagation| Mount { propagation: *propagation, ..Mount::new("/mnt", "/mnt", false) }).collect();
        let value = serde_json::to_value(bundle(&spec, &Facts::default()).unwrap()).unwrap();
        let mounts = value["mounts"].as_array().unwrap().iter().filter(|mount| mount["destination"] == "/mnt");
        let options: Vec<_> = mounts.map(|mount| mount["options"][1].as_str().unwrap().to_owned()).collect();
        (options.join(" "), value["linux"]["rootfsPropagation"].as_str().map(str::to_owned))
    };
    let (none, from, both) = (Propagation::Private, Propagation::FromNode, Propagation::BothWays);
    assert_eq!(with(&[none]), ("rprivate".to_owned(), None));
    assert_eq!(with(&[none, from]), ("rprivate rslave".to_owned(), Some("rslave".to_owned())));
    assert_eq!(with(&[both, from]), ("rshared rslave".to_owned(), Some("rshared".to_owned())));
}

#[test]
fn a_user_namespace_is_joined_with_its_ids() {
    let mut of_pod = spec();
    of_pod.sandbox.user = Some(UserNamespace { path: "/run/user/a".into(), first_id: 131_072 });
    of_pod.sandbox.ipc = Some("/run/ipc/a".into());
    let config = |spec: &ContainerSpec| serde_json::to_value(bundle(spec, &v1()).expect("a spec")).expect("JSON");
    let linux = &config(&of_pod)["linux"];
    for map in ["uidMappings", "gidMappings"] {
        assert_eq!(linux[map], json!([{"containerID": 0, "hostID": 131_072, "size": 65_536}]), "{map}");
    }
    let namespaces = linux["namespaces"].as_array().expect("a list");
    let position = |kind: &str| namespaces.iter().position(|namespace| namespace["type"] == kind).expect("listed");
    assert_eq!(namespaces[position("user")]["path"], "/run/user/a");
    assert!(config(&spec())["linux"].get("uidMappings").is_none());
}

#[test]
fn an_unmasked_proc_needs_a_user_namespace() {
    let mut unmasked = spec();
    unmasked.security.unmasked_proc = true;
    let refused = bundle(&unmasked, &v1()).expect_err("the node's files of the kernel").to_string();
    assert!(refused.contains("hostUsers: false"), "{refused}");
    unmasked.sandbox.user = Some(UserNamespace { path: "/run/user/a".into(), first_id: 131_072 });
    let config = serde_json::to_value(bundle(&unmasked, &v1()).expect("a spec")).expect("JSON");
    assert_eq!((&config["linux"]["maskedPaths"], &config["linux"]["readonlyPaths"]), (&json!([]), &json!([])));
}
