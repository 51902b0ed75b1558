//! The user that a container runs as, and its security settings. Pure, except that it reads the image's user names.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SecurityContext};
use runtimes_contract::{ContentKind, Seccomp, Security, USER_NAMESPACE_IDS, User};

use super::{ConfigError, has_user_namespace, inside, user_id};
use crate::layout::PodName;

/// Most bytes of an image's `/etc/passwd` or `/etc/group` that are read.
const NAMES_LEN_MAX: u64 = 1 << 20;
/// The `supplementalGroupsPolicy` by which only the groups of the Pod's spec count.
const STRICT: &str = "Strict";
/// Most groups in which an image may have a user. Each is a number in the status of the Pod.
const IMAGE_GROUPS_MAX: usize = 1_000;
/// Most bytes of a seccomp profile of the node.
const PROFILE_LEN_MAX: u64 = 1 << 20;

/// The container's privileges beyond the default.
pub(crate) fn privileges(container: &Container) -> Security {
    let Some(context) = &container.security_context else { return Security::default() };
    let capabilities = context.capabilities.as_ref();
    let names = |list: Option<&Vec<String>>| list.into_iter().flatten().map(|name| name.trim_start_matches("CAP_").to_owned()).collect();
    let privileged = context.privileged.unwrap_or(false);
    Security {
        privileged,
        read_only_root: context.read_only_root_filesystem.unwrap_or(false),
        no_new_privileges: !privileged && context.allow_privilege_escalation == Some(false),
        capabilities_add: names(capabilities.and_then(|capabilities| capabilities.add.as_ref())),
        capabilities_drop: names(capabilities.and_then(|capabilities| capabilities.drop.as_ref())),
        seccomp: Seccomp::RuntimeDefault,
        app_armor: None,
        unmasked_proc: context.proc_mount.as_deref() == Some("Unmasked"),
        keeps_projects: false,
    }
}

/// The container's seccomp profile: its own, else its Pod's, else the runtime's default. `profiles` is the directory of the
/// node's profiles.
pub(crate) fn seccomp(pod: &Pod, container: &Container, kind: ContentKind, profiles: &Path) -> Result<Seccomp, ConfigError> {
    let own = container.security_context.as_ref().and_then(|own| own.seccomp_profile.as_ref());
    let of_pod = || pod.spec.as_ref()?.security_context.as_ref()?.seccomp_profile.as_ref();
    let Some(wanted) = own.or_else(of_pod) else { return Ok(Seccomp::RuntimeDefault) };
    match (wanted.type_.as_str(), kind) {
        ("RuntimeDefault", _) => Ok(Seccomp::RuntimeDefault),
        ("Unconfined", ContentKind::Linux) => Ok(Seccomp::Unconfined),
        ("Unconfined" | "Localhost", ContentKind::Wasm) => {
            Err(ConfigError("a WebAssembly container runs under the seccomp profile of its shim and can have no other".to_owned()))
        }
        ("Localhost", ContentKind::Linux) => {
            let name = wanted.localhost_profile.as_deref().unwrap_or_default();
            let path = profiles.join(name);
            let fault = |why: ProfileError| ConfigError(format!("cannot load seccomp profile {:?}: {why}", path.display()));
            load_profile(profiles, name).map(Seccomp::Profile).map_err(fault)
        }
        (other, _) => Err(ConfigError(format!("seccomp profile type {other:?} is not known to this node"))),
    }
}

/// Why a seccomp profile cannot be loaded.
#[derive(Debug, thiserror::Error)]
enum ProfileError {
    #[error("it lies outside")]
    Outside,
    #[error("{0}")]
    Open(&'static str),
    #[error("{0}")]
    Read(std::io::Error),
    #[error("longer than {PROFILE_LEN_MAX} bytes")]
    TooLong,
    #[error("{0}")]
    Json(serde_json::Error),
}

/// A profile in the form of the OCI runtime spec's `linux.seccomp`. No link and no `..` leads out of the directory.
fn load_profile(profiles: &Path, name: &str) -> Result<serde_json::Value, ProfileError> {
    use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
    use std::io::Read as _;
    let root = std::fs::File::open(profiles).map_err(ProfileError::Read)?;
    let how = OpenHow::new().flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_BENEATH);
    let file = openat2(&root, name, how).map_err(|errno| match errno {
        nix::errno::Errno::EXDEV => ProfileError::Outside,
        other => ProfileError::Open(other.desc()),
    })?;
    let mut text = String::new();
    let len = std::fs::File::from(file).take(PROFILE_LEN_MAX + 1).read_to_string(&mut text).map_err(ProfileError::Read)?;
    if u64::try_from(len).is_ok_and(|len| len > PROFILE_LEN_MAX) {
        return Err(ProfileError::TooLong);
    }
    serde_json::from_str(&text).map_err(ProfileError::Json)
}

/// The container's user: from the Pod's spec, else from the image. `files` is the image's root directory; a WASM image may have none.
/// As upstream, a Linux container is also in the groups in which its image has the user, but for the policy `Strict`.
pub(crate) fn user(
    pod: &Pod,
    container: &Container,
    image_user: &str,
    kind: ContentKind,
    files: Option<&Path>,
) -> Result<User, ConfigError> {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let own = container.security_context.as_ref();
    let wanted_uid = own.and_then(|own| own.run_as_user).or(of_pod.and_then(|of_pod| of_pod.run_as_user));
    let wanted_gid = own.and_then(|own| own.run_as_group).or(of_pod.and_then(|of_pod| of_pod.run_as_group));
    let image = image_ids(image_user, files)?;
    check_not_root(pod, container, of_pod, own, wanted_uid, image_user, image.0, kind)?;
    let number =
        |id: Option<i64>| id.map(|id| u32::try_from(id).map_err(|_| ConfigError(format!("{id} is not a user or group id")))).transpose();
    let uid = number(wanted_uid)?.or(image.0);
    // A user of the Pod's spec is in root's group unless the spec sets another, as in CRI runtimes.
    let gid = number(wanted_gid)?.or(image.1).or(wanted_uid.map(|_| 0));
    let mut groups = Vec::new();
    let supplemental = of_pod.and_then(|of_pod| of_pod.supplemental_groups.clone()).unwrap_or_default();
    for group in supplemental.into_iter().chain(of_pod.and_then(|of_pod| of_pod.fs_group)) {
        groups.extend(number(Some(group))?);
    }
    let is_strict = of_pod.and_then(|of_pod| of_pod.supplemental_groups_policy.as_deref()) == Some(STRICT);
    // No image makes its guest a member of a group: the groups of a shim are those of the node.
    if kind == ContentKind::Linux && !is_strict {
        let named = if wanted_uid.is_none() { image_user.split(':').next().unwrap_or_default() } else { "" };
        let of_image: BTreeSet<u32> =
            files.into_iter().flat_map(|files| image_groups(files, named, uid.unwrap_or(0))).filter(|id| !groups.contains(id)).collect();
        check_image_groups(pod, &of_image)?;
        groups.extend(of_image);
    }
    let requested = User { uid, gid, groups };
    check_in_namespace(pod, &requested)?;
    Ok(match kind {
        ContentKind::Linux => requested,
        ContentKind::Wasm => user_id::never_root(requested, &PodName::of(pod).uid, has_user_namespace(pod)),
    })
}

/// Rejects groups of an image that a container cannot be in.
fn check_image_groups(pod: &Pod, groups: &BTreeSet<u32>) -> Result<(), ConfigError> {
    let remedy = "securityContext.supplementalGroupsPolicy Strict leaves the groups of the image out";
    if groups.len() > IMAGE_GROUPS_MAX {
        return Err(ConfigError(format!("the image has the user in {} groups, more than {IMAGE_GROUPS_MAX}: {remedy}", groups.len())));
    }
    match groups.last().filter(|last| has_user_namespace(pod) && **last >= USER_NAMESPACE_IDS) {
        Some(last) => Err(ConfigError(format!(
            "the image has the user in group {last}, but the user namespace of the Pod (hostUsers: false) has the groups 0 to {}: {remedy}",
            USER_NAMESPACE_IDS - 1
        ))),
        None => Ok(()),
    }
}

/// Rejects ids that the Pod's user namespace does not have.
fn check_in_namespace(pod: &Pod, user: &User) -> Result<(), ConfigError> {
    let ids = user.uid.iter().chain(&user.gid).chain(&user.groups);
    match ids.copied().find(|id| *id >= USER_NAMESPACE_IDS).filter(|_| has_user_namespace(pod)) {
        Some(id) => Err(ConfigError(format!(
            "the user namespace of the Pod (hostUsers: false) has the users and groups 0 to {}, but the container runs as {id}",
            USER_NAMESPACE_IDS - 1
        ))),
        None => Ok(()),
    }
}

#[expect(clippy::too_many_arguments, reason = "the rule looks at all of these and nothing else needs them together")]
fn check_not_root(
    pod: &Pod,
    container: &Container,
    of_pod: Option<&PodSecurityContext>,
    own: Option<&SecurityContext>,
    wanted: Option<i64>,
    image_user: &str,
    image_uid: Option<u32>,
    kind: ContentKind,
) -> Result<(), ConfigError> {
    let non_root = own.and_then(|own| own.run_as_non_root).or(of_pod.and_then(|of_pod| of_pod.run_as_non_root));
    if non_root != Some(true) {
        return Ok(());
    }
    let at = format!("(pod: \"{}\", container: {})", PodName::of(pod), container.name);
    let named = image_user.split(':').next().unwrap_or_default();
    match (wanted, image_uid) {
        (Some(0), _) => Err(ConfigError(format!("container's runAsUser breaks non-root policy {at}"))),
        (Some(_), _) => Ok(()),
        (None, _) if !named.is_empty() && named.parse::<u32>().is_err() => Err(ConfigError(format!(
            "container has runAsNonRoot and image has non-numeric user ({named}), cannot verify user is non-root {at}"
        ))),
        // A WASM container has its Pod's own user when neither spec nor image names one.
        (None, None) if kind == ContentKind::Wasm => Ok(()),
        (None, None | Some(0)) => Err(ConfigError(format!("container has runAsNonRoot and image will run as root {at}"))),
        (None, Some(_)) => Ok(()),
    }
}

/// The numbers behind an image's `User`: numbers as they are, names by the image's own files. An image without files has no names.
fn image_ids(user: &str, files: Option<&Path>) -> Result<(Option<u32>, Option<u32>), ConfigError> {
    if user.is_empty() {
        return Ok((None, None));
    }
    let (name, group) = user.split_once(':').unwrap_or((user, ""));
    let Some(rootfs) = files else {
        return Ok((name.parse().ok(), group.parse().ok()));
    };
    let unknown = |what: &str, name: &str| ConfigError(format!("unable to find {what} {name}: no matching entries in the image"));
    let entry = if name.parse::<u32>().is_ok() { None } else { Some(passwd_entry(rootfs, name).ok_or_else(|| unknown("user", name))?) };
    let uid = entry.as_ref().map(|(uid, _)| *uid).or_else(|| name.parse().ok());
    let gid = match group {
        "" => entry.map(|(_, gid)| gid).or_else(|| name.parse().ok().and_then(|uid| gid_of(rootfs, uid))),
        number if number.parse::<u32>().is_ok() => number.parse().ok(),
        named => Some(group_id(rootfs, named).ok_or_else(|| unknown("group", named))?),
    };
    Ok((uid, gid))
}

fn passwd_entry(rootfs: &Path, name: &str) -> Option<(u32, u32)> {
    let users = entries(rootfs, "etc/passwd");
    users.lines().find(|line| field(line, 0) == Some(name)).and_then(ids)
}

fn gid_of(rootfs: &Path, uid: u32) -> Option<u32> {
    let users = entries(rootfs, "etc/passwd");
    users.lines().filter_map(ids).find(|(found, _)| *found == uid).map(|(_, gid)| gid)
}

fn group_id(rootfs: &Path, name: &str) -> Option<u32> {
    let groups = entries(rootfs, "etc/group");
    field(groups.lines().find(|line| field(line, 0) == Some(name))?, 2)?.parse().ok()
}

/// The groups in which the image has a user beside the user's own one. A user without a name is looked up by its id.
fn image_groups(rootfs: &Path, name: &str, uid: u32) -> Vec<u32> {
    let users = entries(rootfs, "etc/passwd");
    let by_id = || field(users.lines().find(|line| ids(line).is_some_and(|(found, _)| found == uid))?, 0);
    let name = if name.is_empty() || name.parse::<u32>().is_ok() { by_id() } else { Some(name) };
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Vec::new() };
    let is_member =
        |line: &&str| field(line, 0) != Some(name) && field(line, 3).is_some_and(|members| members.split(',').any(|member| member == name));
    entries(rootfs, "etc/group").lines().filter(is_member).filter_map(|line| field(line, 2)?.parse().ok()).collect()
}

/// User and group of a line of `/etc/passwd`.
fn ids(line: &str) -> Option<(u32, u32)> {
    Some((field(line, 2)?.parse().ok()?, field(line, 3)?.parse().ok()?))
}

fn field(line: &str, number: usize) -> Option<&str> {
    line.split(':').nth(number)
}

/// A file of names of the image, with a line for each. One that cannot be read, or is too long, has none.
fn entries(rootfs: &Path, file: &str) -> String {
    let bytes = inside::read(rootfs, file, NAMES_LEN_MAX + 1).unwrap_or_default();
    let fits = u64::try_from(bytes.len()).is_ok_and(|len| len <= NAMES_LEN_MAX);
    String::from_utf8(bytes).ok().filter(|_| fits).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run(pod_context: Value, context: Value, image_user: &str, kind: ContentKind, files: Option<&Path>) -> Result<User, String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"securityContext": pod_context, "containers": [{"name": "c", "securityContext": context}]},
        }))
        .expect("a pod");
        user(&pod, &pod.spec.as_ref().expect("a spec").containers[0], image_user, kind, files).map_err(|error| error.0)
    }

    #[test]
    fn the_pod_goes_before_the_image() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(root.path().join("etc")).expect("making");
        std::fs::write(root.path().join("etc/passwd"), "root:x:0:0::/:\nweb:x:33:34::/:\n").expect("writing");
        std::fs::write(root.path().join("etc/group"), "root:x:0:root\nwheel:x:10:root,web\nweb:x:34:web\nstaff:x:50:\nbad:x:y:web\n")
            .expect("writing");
        let user = |uid, gid, groups: &[u32]| Ok(User { uid, gid, groups: groups.to_vec() });
        for (pod, own, image, wanted) in [
            (json!({}), json!({}), "", user(None, None, &[10])),
            (json!({"supplementalGroupsPolicy": "Strict"}), json!({}), "", user(None, None, &[])),
            (json!({}), json!({}), "1000:2000", user(Some(1000), Some(2000), &[])),
            (json!({}), json!({}), "web", user(Some(33), Some(34), &[10])),
            (json!({}), json!({}), "33", user(Some(33), Some(34), &[10])),
            (json!({"runAsUser": 33, "supplementalGroups": [10, 6]}), json!({}), "", user(Some(33), Some(0), &[10, 6])),
            (json!({"supplementalGroupsPolicy": "Merge"}), json!({}), "web:staff", user(Some(33), Some(50), &[10])),
            (json!({"supplementalGroupsPolicy": "Strict", "fsGroup": 7}), json!({}), "web:staff", user(Some(33), Some(50), &[7])),
            (
                json!({"runAsUser": 5, "fsGroup": 7, "supplementalGroups": [6]}),
                json!({"runAsUser": 9}),
                "web",
                user(Some(9), Some(34), &[6, 7]),
            ),
            (json!({"runAsUser": 5}), json!({}), "", user(Some(5), Some(0), &[])),
            (json!({}), json!({}), "nobody", Err("unable to find user nobody: no matching entries in the image".to_owned())),
        ] {
            assert_eq!(run(pod.clone(), own, image, ContentKind::Linux, Some(root.path())), wanted, "{pod} {image}");
        }
    }

    #[test]
    fn a_user_namespace_has_65536_ids() {
        let user = |host_users: Value, id: i64| {
            let context = json!({"runAsUser": 5, "supplementalGroups": [id]});
            let spec = json!({"hostUsers": host_users, "securityContext": context, "containers": [{"name": "c"}]});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
            let container = &pod.spec.as_ref().expect("a spec").containers[0];
            user(&pod, container, "", ContentKind::Linux, None).map(|user| user.groups).map_err(|error| error.0)
        };
        assert_eq!(user(json!(false), 65_535), Ok(vec![65_535]));
        assert_eq!(user(json!(true), 65_536), Ok(vec![65_536]));
        let refused = user(json!(false), 65_536).expect_err("refused");
        assert!(refused.contains("has the users and groups 0 to 65535, but the container runs as 65536"), "{refused}");
    }

    #[test]
    fn an_image_cannot_give_its_user_any_number_of_groups() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(root.path().join("etc")).expect("making");
        std::fs::write(root.path().join("etc/passwd"), "root:x:0:0::/:\n").expect("writing");
        let groups = |ids: &mut dyn Iterator<Item = u32>, host_users: bool| {
            let text: String = ids.map(|id| format!("g{id}:x:{id}:root\n")).collect();
            std::fs::write(root.path().join("etc/group"), text).expect("writing");
            let spec = json!({"hostUsers": host_users, "containers": [{"name": "c"}]});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
            let container = &pod.spec.as_ref().expect("a spec").containers[0];
            user(&pod, container, "", ContentKind::Linux, Some(root.path())).map(|user| user.groups.len()).map_err(|error| error.0)
        };
        assert_eq!(groups(&mut (1..=1_000), true), Ok(1_000));
        assert_eq!(groups(&mut std::iter::repeat_n(7, 5_000), true), Ok(1), "each once");
        let refused = groups(&mut (1..=1_001), true).expect_err("refused");
        assert!(refused.contains("in 1001 groups, more than 1000: securityContext.supplementalGroupsPolicy Strict"), "{refused}");
        assert_eq!(groups(&mut (1..=200_000), true), Ok(0), "a file that is too long counts as empty");
        assert_eq!(groups(&mut std::iter::once(65_536), true), Ok(1));
        let refused = groups(&mut std::iter::once(65_536), false).expect_err("refused");
        assert!(refused.contains("the image has the user in group 65536, but the user namespace"), "{refused}");
    }

    #[test]
    fn the_names_of_a_wasm_image_are_those_of_its_files() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(root.path().join("etc")).expect("making");
        std::fs::write(root.path().join("etc/passwd"), "root:x:0:0::/:\nweb:x:33:34::/:\n").expect("writing");
        let user = |image, files| run(json!({}), json!({}), image, ContentKind::Wasm, files);
        std::fs::write(root.path().join("etc/group"), "wheel:x:10:web\n").expect("writing");
        let web = User { uid: Some(33), gid: Some(34), groups: Vec::new() };
        let of_pod = user("", None).expect("the Pod's own user");
        assert!(of_pod.uid.is_some_and(|uid| uid != 0), "{of_pod:?}");
        for (image, files, wanted) in [
            ("web", Some(root.path()), Ok(web.clone())),
            ("33", Some(root.path()), Ok(web)),
            ("root", Some(root.path()), Ok(of_pod.clone())),
            ("absent", Some(root.path()), Err("unable to find user absent: no matching entries in the image".to_owned())),
            ("web", None, Ok(of_pod)),
        ] {
            assert_eq!(user(image, files), wanted, "{image} {files:?}");
        }
    }

    #[test]
    fn a_named_pipe_instead_of_the_names_keeps_nobody_waiting() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(root.path().join("etc")).expect("making");
        for file in ["etc/passwd", "etc/group"] {
            nix::unistd::mkfifo(&root.path().join(file), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        }
        let files = root.path().to_owned();
        let user = move |user| run(json!({}), json!({}), user, ContentKind::Linux, Some(&files));
        let (results, answer) = std::sync::mpsc::channel();
        std::thread::spawn(move || results.send(["web", "1000:staff"].map(user)));
        let answers = answer.recv_timeout(std::time::Duration::from_secs(10)).expect("an answer");
        let wanted = [("user", "web"), ("group", "staff")];
        assert_eq!(answers, wanted.map(|(what, name)| Err(format!("unable to find {what} {name}: no matching entries in the image"))));
    }

    #[test]
    fn non_root_is_checked() {
        let linux = |own, image| run(json!({"runAsNonRoot": true}), own, image, ContentKind::Linux, Some(Path::new("/nowhere")));
        let non_root = json!({"runAsNonRoot": true});
        let at = "(pod: \"p_n(u)\", container: c)";
        assert_eq!(linux(json!({}), ""), Err(format!("container has runAsNonRoot and image will run as root {at}")));
        assert_eq!(linux(json!({"runAsUser": 0}), ""), Err(format!("container's runAsUser breaks non-root policy {at}")));
        assert!(linux(json!({}), "12").is_ok());
        assert!(run(non_root, json!({}), "", ContentKind::Wasm, None).is_ok());
    }

    #[test]
    fn the_container_goes_before_the_pod_in_what_it_may_call() {
        let root = tempfile::tempdir().expect("a directory");
        let profiles = root.path().join("seccomp");
        std::fs::create_dir(&profiles).expect("making");
        std::fs::write(profiles.join("own.json"), r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#).expect("writing");
        std::fs::write(root.path().join("secret.json"), "{}").expect("writing");
        std::os::unix::fs::symlink("../secret.json", profiles.join("link.json")).expect("linking");
        let of = |of_pod: Value, own: Value, kind: ContentKind| {
            let spec = json!({"securityContext": {"seccompProfile": of_pod}, "containers": [{"name": "c", "securityContext": {"seccompProfile": own}}]});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
            seccomp(&pod, &pod.spec.as_ref().expect("a spec").containers[0], kind, &profiles).map_err(|error| error.0)
        };
        let (linux, kind) = (ContentKind::Linux, |kind: &str| json!({"type": kind}));
        let local = |name: &str| json!({"type": "Localhost", "localhostProfile": name});
        assert_eq!(of(Value::Null, Value::Null, linux), Ok(Seccomp::RuntimeDefault));
        assert_eq!(of(kind("Unconfined"), Value::Null, linux), Ok(Seccomp::Unconfined));
        assert_eq!(of(kind("Unconfined"), kind("RuntimeDefault"), linux), Ok(Seccomp::RuntimeDefault));
        let profile = Seccomp::Profile(json!({"defaultAction": "SCMP_ACT_ALLOW"}));
        assert_eq!(of(local("own.json"), Value::Null, linux), Ok(profile));
        for (name, why) in [("absent.json", "No such file"), ("../secret.json", "it lies outside"), ("link.json", "it lies outside")] {
            let refused = of(Value::Null, local(name), linux).expect_err("refused");
            assert!(refused.starts_with("cannot load seccomp profile") && refused.contains(why), "{refused}");
        }
        for refused in [local("own.json"), kind("Unconfined")] {
            let why = of(refused, Value::Null, ContentKind::Wasm).expect_err("refused");
            assert!(why.contains("the seccomp profile of its shim"), "{why}");
        }
        assert_eq!(of(kind("Unconfined"), kind("RuntimeDefault"), ContentKind::Wasm), Ok(Seccomp::RuntimeDefault));
    }

    #[test]
    fn a_link_in_the_image_does_not_lead_out() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(root.path().join("etc")).expect("making");
        std::os::unix::fs::symlink("/etc/passwd", root.path().join("etc/passwd")).expect("linking");
        assert_eq!(passwd_entry(root.path(), "root"), None);
    }
}
