//! Containers with user namespaces: root inside is nobody on the node, files have the ids of both sides, and nothing stays mounted.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount, umount};
use nix::sched::CloneFlags;
use runtimes_battery::{Harness, Program, pid_of, plain_spec, spec_of, until};
use runtimes_contract::{
    ContainerSpec, Content, ExecSpec, Mount, Processes, Propagation, RuntimeError, USER_NAMESPACE_IDS, User, UserNamespace,
};
use runtimes_host::user_namespace::Owned;
use tokio::io::AsyncReadExt as _;

use crate::harness::Runc;
use crate::oci::run;

/// The namespaces of a Pod.
pub struct Pod {
    namespaces: Owned,
    first_id: u32,
}

impl Pod {
    pub fn new(range: u32) -> Self {
        let kinds = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
        let first_id = range * USER_NAMESPACE_IDS;
        Self { namespaces: Owned::make(first_id, kinds).expect("made"), first_id }
    }

    /// Gives the Pod's namespaces to a container, and the container's root file system to the Pod.
    pub fn take(&self, spec: &mut ContainerSpec) {
        let of = |kind: &str| Some(self.namespaces.namespace(kind));
        spec.sandbox.network = of("net");
        spec.sandbox.ipc = of("ipc");
        spec.sandbox.uts = of("uts");
        spec.sandbox.user = Some(UserNamespace { path: self.namespaces.namespace("user"), first_id: self.first_id });
        if let Content::Linux { rootfs } = &spec.content {
            give(rootfs, self.first_id);
        }
    }

    fn script(&self, harness: &Runc, id: &str, text: &str) -> ContainerSpec {
        let mut spec = spec_of(harness, id, Program::Hello);
        spec.args = ["/bin/sh", "-c", text].map(str::to_owned).to_vec();
        self.take(&mut spec);
        spec
    }
}

/// As the image store does with the layers of an image.
fn give(tree: &Path, first_id: u32) {
    let owner = format!("{first_id}:{first_id}");
    let done = std::process::Command::new("chown").args(["-hR", &owner]).arg(tree).status().expect("chown runs");
    assert!(done.success());
}

/// A directory that only root may enter, with a file that only root may read.
fn volume(harness: &Runc, name: &str) -> PathBuf {
    let volume = harness.scratch().join(name);
    std::fs::create_dir(&volume).unwrap();
    std::fs::set_permissions(&volume, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(volume.join("secret"), "of root\n").unwrap();
    std::fs::set_permissions(volume.join("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    volume
}

/// Mounts of the node, as this process sees them.
fn mounts_below(dir: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.contains(dir.to_str().unwrap())).map(str::to_owned).collect()
}

#[tokio::test]
async fn root_inside_owns_the_files_of_root_and_is_nobody_on_the_node() {
    let (harness, pod) = (Runc::new(), Pod::new(3));
    assert_eq!(harness.runtime().supports_user_namespaces(&[harness.scratch()]).map_err(|error| error.to_string()), Ok(()));
    let data = volume(&harness, "data");
    let text = "id -u; cat /proc/self/uid_map /proc/self/gid_map; cat /data/secret; ls -ln /data/secret /bin/busybox; \
                echo made > /data/made; chown 7:8 /data/made; echo x > /root-file; echo out > /dev/stdout; echo ready; sleep 1000";
    let mut spec = pod.script(&harness, "box", text);
    spec.mounts = vec![Mount::new(&data, "/data", false)];
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    let log = || std::fs::read_to_string(&spec.log_path).unwrap();
    until("it is done", || log().contains("ready")).await;
    let lines: Vec<String> =
        log().lines().map(|line| line.splitn(4, ' ').nth(3).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines[..4], ["0", "0 196608 65536", "0 196608 65536", "of root"]);
    for (line, of) in [(&lines[4], "0 0"), (&lines[5], "0 0")] {
        assert_eq!(line.split(' ').skip(2).take(2).collect::<Vec<_>>().join(" "), of, "{line}");
    }
    assert_eq!(lines[6], "out", "its pipe is its own");
    let owner = |path: &Path| {
        let state = std::fs::symlink_metadata(path).unwrap();
        (state.uid(), state.gid())
    };
    assert_eq!(owner(&data.join("made")), (7, 8), "files of a volume have the ids of the container");
    let pid = pid_of(&*runtime, &spec.id).await.unwrap();
    assert_eq!(owner(Path::new(&format!("/proc/{pid}"))), (pod.first_id, pod.first_id), "on the node it is nobody's root");
    assert_eq!(mounts_below(harness.scratch()), [""; 0], "the node does not see its mounts");
    runtime.remove(&spec.id).await.unwrap();
    assert_eq!(mounts_below(harness.scratch()), [""; 0]);
}

#[tokio::test]
async fn other_users_and_groups_are_those_of_the_volume() {
    let (harness, pod) = (Runc::new(), Pod::new(3));
    let data = volume(&harness, "data");
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o770)).unwrap();
    chown(&data, Some(0), Some(2000)).unwrap();
    let mut spec = pod.script(&harness, "box", "id -u; id -G; echo x > /data/made; cat /data/secret || echo no");
    spec.user = User { uid: Some(1000), gid: Some(1001), groups: vec![2000] };
    spec.mounts = vec![Mount::new(&data, "/data", false)];
    let (exit, mut said) = run(&harness, &spec).await;
    said.sort();
    assert_eq!((exit.code, said.join("|")), (0, "1000|1001 2000|cat: can't open '/data/secret': Permission denied|no".to_owned()));
    assert_eq!(std::fs::metadata(data.join("made")).unwrap().uid(), 1000);
}

/// What the spec of a mount says holds, whatever capabilities the container has in its namespace.
#[tokio::test]
async fn a_container_with_all_capabilities_cannot_change_what_its_mounts_are() {
    let (harness, pod) = (Runc::new(), Pod::new(3));
    let (fixed, below) = (volume(&harness, "fixed"), volume(&harness, "single"));
    let text = "mount -t tmpfs none /tmp && echo mounts; mount -o remount,bind,rw /fixed; echo x > /fixed/made; echo y > /single; \
                echo 1 > /proc/sys/kernel/panic; echo 7 > /proc/sys/net/ipv4/ip_default_ttl; cat /proc/sys/net/ipv4/ip_default_ttl; \
                mount -t ext4 /dev/vda /tmp; ls /dev/vda";
    let mut spec = pod.script(&harness, "box", &format!("({text}) 2>/dev/null"));
    spec.security.capabilities_add = vec!["ALL".to_owned()];
    let mut single = Mount::new(below.join("secret"), "/single", true);
    single.no_exec = true;
    spec.mounts = vec![Mount::new(&fixed, "/fixed", true), single];
    let (_, said) = run(&harness, &spec).await;
    assert_eq!(said, ["mounts", "64"], "/proc/sys is read-only, and so are the volumes");
    assert!(!fixed.join("made").exists());
    assert_eq!(std::fs::read_to_string(below.join("secret")).unwrap(), "of root\n");
}

#[tokio::test]
async fn a_privileged_container_is_root_of_its_namespaces_alone() {
    let (harness, pod) = (Runc::new(), Pod::new(3));
    let disk = std::fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().path()).find(|path| {
        use std::os::unix::fs::FileTypeExt as _;
        path.symlink_metadata().unwrap().file_type().is_block_device()
    });
    let disk = disk.expect("a disk").display().to_string();
    let text = format!(
        "ls {disk}; head -c 1 {disk} || echo refused; echo 1 > /proc/sys/kernel/panic || echo refused; mount -t tmpfs none /tmp && echo mounted"
    );
    let mut spec = pod.script(&harness, "box", &format!("({text}) 2>/dev/null"));
    spec.security.privileged = true;
    let (exit, said) = run(&harness, &spec).await;
    assert_eq!((exit.code, said), (0, vec![disk, "refused".to_owned(), "refused".to_owned(), "mounted".to_owned()]));
}

/// A mount that ends with the test, and what is mounted below.
struct Mounted(PathBuf);

impl Mounted {
    fn at(dir: PathBuf) -> Self {
        std::fs::create_dir_all(&dir).unwrap();
        mount(Some("tmpfs"), &dir, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
        Self(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        umount(&self.0).unwrap();
    }
}

#[tokio::test]
async fn a_later_mount_of_the_node_arrives_in_a_container_that_wants_it() {
    let (harness, pod) = (Runc::new(), Pod::new(3));
    let data = Mounted::at(harness.scratch().join("data"));
    mount(None::<&str>, &data.0, None::<&str>, MsFlags::MS_SHARED, None::<&str>).unwrap();
    let mut spec = pod.script(&harness, "box", "while [ ! -e /data/late/ready ]; do sleep 0.01; done; ls /alone; id -u");
    spec.mounts =
        vec![Mount { propagation: Propagation::FromNode, ..Mount::new(&data.0, "/data", false) }, Mount::new(&data.0, "/alone", false)];
    harness.runtime().create(&spec).await.unwrap();
    harness.runtime().start(&spec.id).await.unwrap();
    let late = Mounted::at(data.0.join("late"));
    std::fs::write(late.0.join("ready"), "").unwrap();
    assert_eq!(harness.runtime().wait(&spec.id).await.unwrap().code, 0);
    harness.runtime().remove(&spec.id).await.unwrap();
    drop(late);
}

#[tokio::test]
async fn two_pods_are_strangers() {
    let harness = Runc::new();
    let (one, other) = (Pod::new(3), Pod::new(4));
    let data = volume(&harness, "data");
    // A file of the other Pod that came into the volume by a mistake of the node.
    chown(data.join("secret"), Some(other.first_id), Some(other.first_id)).unwrap();
    let sleeper = other.script(&harness, "sleeper", "sleep 1000");
    harness.runtime().create(&sleeper).await.unwrap();
    harness.runtime().start(&sleeper.id).await.unwrap();
    let mut spec = one.script(&harness, "box", "cat /data/secret; chown 0 /data/secret; ls -ln /data/secret; cat /proc/self/uid_map");
    spec.mounts = vec![Mount::new(&data, "/data", false)];
    spec.security.capabilities_add = vec!["ALL".to_owned()];
    let (_, said) = run(&harness, &spec).await;
    let text = said.join("\n");
    assert!(text.contains("Permission denied") && text.contains("Operation not permitted") && text.contains("65534"), "{text}");
    let pid = pid_of(&*harness.runtime(), &sleeper.id).await.unwrap();
    let map = std::fs::read_to_string(format!("/proc/{pid}/uid_map")).unwrap();
    assert!(map.contains("262144") && text.contains("196608"), "{map} {text}");
    harness.runtime().remove(&sleeper.id).await.unwrap();
}

#[tokio::test]
async fn the_files_of_the_kernel_are_hidden_unless_the_spec_unmasks_them() {
    let (harness, pod) = (Runc::new(), Pod::new(3));
    let text = "grep -c ' /proc/' /proc/self/mountinfo; echo 7 > /proc/sys/net/ipv4/ip_default_ttl && echo written; \
                echo 1 > /proc/sys/kernel/panic || echo refused";
    let mut spec = pod.script(&harness, "box", &format!("({text}) 2>/dev/null"));
    spec.security.capabilities_add = vec!["NET_ADMIN".to_owned()];
    let (_, said) = run(&harness, &spec).await;
    assert!(said[0].parse::<u32>().unwrap() > 3 && said[1..] == ["refused"], "{said:?}");
    std::fs::remove_file(&spec.log_path).unwrap();
    spec.security.unmasked_proc = true;
    let (_, said) = run(&harness, &spec).await;
    assert_eq!(said, ["0", "written", "refused"], "its own namespaces alone are its to change");
    let mut on_node = spec_of(&harness, "open", Program::Hello);
    on_node.security.unmasked_proc = true;
    let refused = harness.runtime().create(&on_node).await.unwrap_err();
    assert!(matches!(&refused, RuntimeError::Unsupported(why) if why.contains("hostUsers: false")), "{refused}");
}

#[tokio::test]
async fn a_file_system_without_such_mounts_is_refused_in_upstreams_words() {
    let (harness, pod) = (Runc::new(), Pod::new(3));
    let refused = harness.runtime().supports_user_namespaces(&[Path::new("/proc")]).unwrap_err();
    assert!(matches!(&refused, RuntimeError::Missing(why) if why.contains("MOUNT_ATTR_IDMAP on /proc")), "{refused}");
    let mut spec = pod.script(&harness, "box", "echo ran");
    spec.mounts = vec![Mount::new("/proc/sys", "/data", false)];
    harness.runtime().create(&spec).await.unwrap();
    let refused = harness.runtime().start(&spec.id).await.unwrap_err().to_string();
    let wanted = "failed to set MOUNT_ATTR_IDMAP on /proc/sys: Invalid argument \
                  (maybe the filesystem used doesn't support idmap mounts on this kernel?)";
    assert_eq!(refused, wanted);
    assert_eq!(std::fs::read_to_string(&spec.log_path).unwrap(), "");
    harness.runtime().remove(&spec.id).await.unwrap();
    spec.mounts = vec![Mount { ids_mapped: true, ..Mount::new("/proc/sys", "/data", false) }];
    let (exit, said) = run(&harness, &spec).await;
    assert_eq!((exit.code, said.join("")), (0, "ran".to_owned()), "whoever has mapped its ids knows");
    spec.mounts = vec![Mount { propagation: Propagation::BothWays, ..Mount::new(harness.scratch(), "/data", false) }];
    let refused = harness.runtime().create(&spec).await.unwrap_err().to_string();
    assert!(refused.contains("mountPropagation Bidirectional"), "{refused}");
}

#[tokio::test]
async fn execs_are_in_the_namespace_and_may_open_their_streams() {
    let (harness, pod) = (Runc::new(), Pod::new(3));
    let mut spec = spec_of(&harness, "box", Program::Sleep);
    pod.take(&mut spec);
    harness.runtime().create(&spec).await.unwrap();
    harness.runtime().start(&spec.id).await.unwrap();
    for tty in [false, true] {
        let text = "cat /proc/self/uid_map; id -u; echo again > /dev/stdout; exit 5";
        let args = ["/bin/sh", "-c", text].map(str::to_owned).to_vec();
        let exec = ExecSpec { args, stdin: false, tty, outlives_session: false };
        let mut session = harness.reopened().exec(&spec.id, exec).await.unwrap();
        let mut said = String::new();
        session.stdout.read_to_string(&mut said).await.unwrap();
        assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["0", "196608", "65536", "0", "again"], "{tty}");
        assert_eq!(session.exit.await.unwrap(), 5);
    }
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_pause_container_is_the_first_process_of_a_namespace_of_the_pods_own() {
    let (harness, pod) = (Runc::new(), Pod::new(3));
    let mut pause = ContainerSpec { content: Content::Pause, cgroup: harness.cgroup("pause"), ..plain_spec("pause") };
    pod.take(&mut pause);
    let runtime = harness.runtime();
    runtime.create(&pause).await.unwrap();
    runtime.start(&pause.id).await.unwrap();
    let pid = pid_of(&*runtime, &pause.id).await.unwrap();
    assert!(!children().is_empty(), "the pause container is a child of its starter");
    let of = |name: &str| format!("/proc/{pid}/{name}");
    let status = std::fs::read_to_string(of("status")).unwrap();
    let user = (pod.first_id + 65_535).to_string();
    for wanted in [format!("Uid:\t{user}\t{user}\t{user}\t{user}"), "CapBnd:\t0000000000000000".to_owned(), "Seccomp:\t2".to_owned()] {
        assert!(status.contains(&wanted), "{wanted}: {status}");
    }
    assert_eq!(std::fs::read(of("cmdline")).unwrap(), b"/pause\0");
    assert_eq!(std::fs::read_dir(of("root")).unwrap().count(), 0);
    let descriptors: Vec<_> = std::fs::read_dir(of("fd")).unwrap().map(|fd| std::fs::read_link(fd.unwrap().path()).unwrap()).collect();
    assert!(descriptors.iter().all(|file| file == Path::new("/dev/null")), "{descriptors:?}");
    let mut app = pod.script(&harness, "app", "cat /proc/1/comm; echo $$ > /dev/null; kill -9 1; ls /proc/1/root 2>&1; exit 4");
    app.processes = Processes::OfContainer(pause.id.clone());
    let (exit, said) = run(&harness, &app).await;
    assert_eq!((exit.code, said[0].as_str()), (4, "pause"), "{said:?}");
    assert!(said[1].contains("Permission denied"), "{said:?}");
    assert_eq!(pid_of(&*harness.reopened(), &pause.id).await, Some(pid));
    runtime.signal(&pause.id, 9).await.unwrap();
    assert_eq!(runtime.wait(&pause.id).await.unwrap().code, 137);
    runtime.remove(&pause.id).await.unwrap();
    until("nothing is left to reap", || children().is_empty()).await;
    assert_eq!(mounts_below(harness.scratch()), [""; 0]);
}

/// The names of the shims and pause containers that are children of this process, of whichever thread. A process that has ended and was
/// not reaped still has its name.
fn children() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(thread.unwrap().path().join("children"));
    let pids: String = threads.map(|thread| of_thread(thread).unwrap_or_default()).collect();
    let names = pids.split_whitespace().map(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default());
    names.filter(|name| name.starts_with("skiff-shim") || name == "pause\n").collect()
}
