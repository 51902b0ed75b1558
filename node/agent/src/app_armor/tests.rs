use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::*;

/// A machine in a directory.
struct Machine {
    dir: tempfile::TempDir,
    paths: AppArmorPaths,
}

impl Machine {
    /// Its kernel has AppArmor, with the profile `own`.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = AppArmorPaths::below(dir.path());
        std::fs::create_dir(&paths.dir).expect("made");
        std::fs::write(&paths.enabled, "Y\n").expect("written");
        std::fs::write(paths.dir.join("profiles"), "own (enforce)\nother one (complain)\n").expect("written");
        Self { dir, paths }
    }

    /// Installs a parser that records its arguments and its input, does what the script says, and adds the default profile to the list.
    fn install(&self, script: &str) {
        let (dir, profiles) = (self.dir.path().display(), self.paths.dir.join("profiles"));
        let profiles = profiles.display();
        let text = format!(
            "#!/bin/sh\ncat > {dir}/input\necho \"$@\" >> {dir}/calls\n{script}\n\
             grep -q skiff-default {profiles} || echo 'skiff-default (enforce)' >> {profiles}\n"
        );
        std::fs::write(&self.paths.parser, text).expect("written");
        std::fs::set_permissions(&self.paths.parser, std::fs::Permissions::from_mode(0o755)).expect("an executable");
    }

    fn app_armor(&self) -> AppArmor {
        AppArmor::detect(self.paths.clone())
    }

    fn calls(&self) -> usize {
        std::fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default().lines().count()
    }
}

fn pod(of_pod: Value, own: Value, annotation: Option<&str>) -> Pod {
    let annotations = annotation.map(|value| json!({"container.apparmor.security.beta.kubernetes.io/c": value}));
    serde_json::from_value(json!({
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"securityContext": {"appArmorProfile": of_pod}, "containers": [{"name": "c", "securityContext": own}]},
    }))
    .expect("a pod")
}

async fn profile(app_armor: &AppArmor, pod: &Pod) -> Result<Option<String>, String> {
    let container = &pod.spec.as_ref().expect("a spec").containers[0];
    app_armor.profile(pod, container).await.map_err(|error| crate::error::chain(&error))
}

fn local(name: &str) -> Value {
    json!({"type": "Localhost", "localhostProfile": name})
}

#[test]
fn the_container_goes_before_the_annotation_and_that_before_the_pod() {
    let kind = |kind: &str| json!({"type": kind});
    let own = |profile: Value| json!({"appArmorProfile": profile});
    let none = || json!({});
    for (of_pod, own, annotation, wanted) in [
        (Value::Null, none(), None, None),
        (local("a"), none(), None, Some(local("a"))),
        (local("a"), own(kind("Unconfined")), Some("runtime/default"), Some(kind("Unconfined"))),
        (local("a"), none(), Some("runtime/default"), Some(kind("RuntimeDefault"))),
        (local("a"), none(), Some("unconfined"), Some(kind("Unconfined"))),
        (Value::Null, none(), Some("localhost/b/c"), Some(local("b/c"))),
        (local("a"), none(), Some("nonsense"), Some(local("a"))),
    ] {
        let pod = pod(of_pod.clone(), own.clone(), annotation);
        let first = requested(&pod, &pod.spec.as_ref().expect("a spec").containers[0]).map(Cow::into_owned);
        let wanted = wanted.map(|wanted| serde_json::from_value::<AppArmorProfile>(wanted).expect("a profile"));
        assert_eq!(first, wanted, "{of_pod} {own} {annotation:?}");
    }
}

#[test]
fn a_profile_is_chosen_as_by_containerd() {
    let of = |type_: &str, name: Option<&str>| AppArmorProfile { type_: type_.to_owned(), localhost_profile: name.map(str::to_owned) };
    let chosen = |requested: Option<&AppArmorProfile>, is_privileged, is_enabled| {
        choose(requested, is_privileged, is_enabled).map_err(|error| error.to_string())
    };
    let (default, local, unconfined) = (of("RuntimeDefault", None), of("Localhost", Some("own")), of("Unconfined", None));
    let localhost = || Ok(Choice::Localhost("own".to_owned()));
    let refused = || Err("Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned());
    for (requested, of_plain, of_privileged, where_disabled) in [
        (None, Ok(Choice::Default), Ok(Choice::Unconfined), Ok(Choice::Unconfined)),
        (Some(&default), Ok(Choice::Default), Ok(Choice::Unconfined), refused()),
        (Some(&local), localhost(), localhost(), refused()),
        (Some(&unconfined), Ok(Choice::Unconfined), Ok(Choice::Unconfined), Ok(Choice::Unconfined)),
    ] {
        assert_eq!(chosen(requested, false, true), of_plain, "{requested:?}");
        assert_eq!(chosen(requested, true, true), of_privileged, "{requested:?}");
        assert_eq!(chosen(requested, false, false), where_disabled, "{requested:?}");
    }
    assert!(chosen(Some(&of("Localhost", Some(" "))), false, true).is_err());
    assert!(chosen(Some(&of("Other", None)), false, true).is_err());
}

#[test]
fn the_kernel_says_whether_profiles_are_enforced() {
    let machine = Machine::new();
    assert!(machine.app_armor().is_enabled());
    for text in ["N\n", ""] {
        std::fs::write(&machine.paths.enabled, text).expect("written");
        assert!(!machine.app_armor().is_enabled(), "{text:?}");
    }
    let machine = Machine::new();
    // As in a container without securityfs, where no profile can be loaded.
    std::fs::remove_dir_all(&machine.paths.dir).expect("removed");
    assert!(!machine.app_armor().is_enabled());
}

#[tokio::test]
async fn a_profile_of_the_node_must_be_loaded() {
    let machine = Machine::new();
    let app_armor = machine.app_armor();
    for (name, wanted) in [
        ("own", Ok(Some("own".to_owned()))),
        ("other one", Ok(Some("other one".to_owned()))),
        ("ow", Err("apparmor profile not found ow".to_owned())),
        ("own (enforce)", Err("apparmor profile not found own (enforce)".to_owned())),
    ] {
        assert_eq!(profile(&app_armor, &pod(local(name), json!({}), None)).await, wanted);
    }
}

#[tokio::test]
async fn the_default_profile_is_loaded_once_and_again_when_it_is_gone() {
    let machine = Machine::new();
    machine.install("");
    let app_armor = machine.app_armor();
    let plain = pod(Value::Null, json!({}), None);
    let (one, other) = tokio::join!(profile(&app_armor, &plain), profile(&app_armor, &plain));
    assert_eq!((one, other), (Ok(Some("skiff-default".to_owned())), Ok(Some("skiff-default".to_owned()))));
    assert_eq!(machine.calls(), 1);
    let input = std::fs::read_to_string(machine.dir.path().join("input")).expect("the parser's input");
    assert!(input.contains("\n  deny mount,\n"), "{input}");
    std::fs::write(machine.paths.dir.join("profiles"), "own (enforce)\n").expect("written");
    assert_eq!(profile(&app_armor, &plain).await, Ok(Some("skiff-default".to_owned())));
    assert_eq!(machine.calls(), 2);
    // One that an earlier version has loaded is replaced.
    assert_eq!(profile(&machine.app_armor(), &plain).await, Ok(Some("skiff-default".to_owned())));
    assert_eq!(machine.calls(), 3);
}

#[tokio::test]
async fn without_a_parser_only_what_requests_a_profile_fails() {
    let machine = Machine::new();
    let app_armor = machine.app_armor();
    assert_eq!(profile(&app_armor, &pod(Value::Null, json!({}), None)).await, Ok(None));
    let requested = pod(json!({"type": "RuntimeDefault"}), json!({}), None);
    let refused = profile(&app_armor, &requested).await.expect_err("refused");
    assert!(refused.contains("apparmor_parser does not exist: install the package apparmor"), "{refused}");
    // What is installed later is found.
    machine.install("");
    assert_eq!(profile(&app_armor, &requested).await, Ok(Some("skiff-default".to_owned())));
}

#[tokio::test]
async fn a_node_in_a_container_loads_no_profile() {
    let mut machine = Machine::new();
    machine.install("");
    machine.paths.in_container = true;
    let app_armor = machine.app_armor();
    assert_eq!(profile(&app_armor, &pod(Value::Null, json!({}), None)).await, Ok(None));
    let refused = profile(&app_armor, &pod(json!({"type": "RuntimeDefault"}), json!({}), None)).await.expect_err("refused");
    assert!(refused.contains("because this node is a container"), "{refused}");
    assert_eq!(machine.calls(), 0);
    assert_eq!(profile(&app_armor, &pod(local("own"), json!({}), None)).await, Ok(Some("own".to_owned())), "one of the host");
}

#[tokio::test]
async fn a_parser_that_fails_is_cited() {
    let machine = Machine::new();
    machine.install("echo >&2; echo 'Permission denied; attempted to load a profile' >&2; exit 1");
    let refused = profile(&machine.app_armor(), &pod(Value::Null, json!({}), None)).await.expect_err("refused");
    assert_eq!(refused, "loading the default AppArmor profile: Permission denied; attempted to load a profile");
    machine.install("exit 3");
    let refused = profile(&machine.app_armor(), &pod(Value::Null, json!({}), None)).await.expect_err("refused");
    assert!(refused.ends_with("apparmor_parser ended with exit status: 3"), "{refused}");
}
