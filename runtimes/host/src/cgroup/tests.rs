use std::collections::BTreeSet;
use std::process::{Child, Command};

use tempfile::TempDir;

use super::layout::Layout;
use super::*;
use runtimes_contract::Resources;

const V1_LINES: &str = "\
30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:10 - cgroup cgroup rw,cpu,cpuacct
32 25 0:28 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
33 25 0:28 / /elsewhere/pids rw,relatime - cgroup cgroup rw,pids
";
const V2_LINE: &str = "35 25 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

/// The group of a container below [`tree`]'s root.
pub(super) const CONTAINER: &str = "skiff/pod/c";

/// A tree of plain files that looks like a unified hierarchy with these controllers, of which groups pass on only some; the kernel's own is
/// bound to v1 on some machines.
pub(super) fn tree(controllers: &str) -> TempDir {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(root.path().join(CONTAINER)).expect("the container's group");
    for dir in ["", "skiff", "skiff/pod"] {
        std::fs::write(root.path().join(dir).join("cgroup.subtree_control"), "cpu memory\n").expect("what a group passes on");
    }
    std::fs::write(root.path().join("cgroup.controllers"), controllers).expect("the controllers");
    root
}

/// The line of mountinfo for a hierarchy at a directory.
pub(super) fn mount(dir: &Path, kind: &str, options: &str) -> String {
    format!("30 25 0:26 / {} rw - {kind} cgroup rw,{options}\n", dir.display())
}

#[test]
fn the_mode_follows_where_the_controllers_are() {
    let all = "cpuset cpu io memory pids";
    let cases: &[(&str, &str, Result<Mode, &str>)] = &[
        (V1_LINES, "", Ok(Mode::V1)),
        (V2_LINE, all, Ok(Mode::V2)),
        (&format!("{V1_LINES}{V2_LINE}"), "hugetlb", Ok(Mode::Hybrid)),
        (V2_LINE, "cpu pids", Err("memory")),
        ("", "", Err("memory, cpu, pids")),
    ];
    for (lines, controllers, wanted) in cases {
        let layout = Layout::parse(lines.as_bytes(), &|_| (*controllers).to_owned());
        match (layout, wanted) {
            (Ok(layout), Ok(mode)) => assert_eq!(layout.mode, *mode),
            (Err(error), Err(lacking)) => assert!(error.to_string().contains(lacking), "{error}"),
            (got, wanted) => panic!("{got:?} is not {wanted:?}"),
        }
    }
    let layout = Layout::parse(V1_LINES.as_bytes(), &|_| String::new()).unwrap();
    assert_eq!(layout.roots().len(), 3, "a second mount of a hierarchy is not another one");
    assert_eq!(layout.v1_dir("cpuacct"), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
}

/// Anybody's mount points and file systems stand in mountinfo beside the cgroup hierarchies.
#[test]
fn mounts_of_others_that_are_not_utf8_change_nothing() {
    let odd: &[u8] = b"29 25 0:25 / /mnt/\xff\xfe rw - tmpfs tmpfs rw\n29 25 0:25 / /mnt rw - fuse.\xff sshfs@\xfe rw\n";
    let unified_odd = b"35 25 0:30 / /\xff/cgroup rw - cgroup2 cgroup2 rw\n";
    let all = |_: &Path| "cpu memory pids".to_owned();
    let v1 = Layout::parse(&[odd, V1_LINES.as_bytes()].concat(), &|_| String::new()).unwrap();
    assert_eq!((v1.mode, v1.roots().len()), (Mode::V1, 3));
    let v2 = Layout::parse(&[odd, V2_LINE.as_bytes()].concat(), &all).unwrap();
    assert_eq!((v2.mode, v2.unified()), (Mode::V2, Some(Path::new("/sys/fs/cgroup"))));
    let ours = Layout::parse(unified_odd, &all).unwrap();
    assert_eq!(ours.unified().unwrap().as_os_str().as_encoded_bytes(), b"/\xff/cgroup", "every byte of a path that is used");
}

#[test]
fn shares_become_weights() {
    for (shares, weight) in [
        (0, 1),
        (2, 1),
        (3, 2),
        (10, 4),
        (102, 17),
        (512, 59),
        (1024, 100),
        (2048, 174),
        (262_143, 10_000),
        (262_144, 10_000),
        (u64::MAX, 10_000),
    ] {
        assert_eq!(cpu_weight(shares), weight, "{shares} shares");
    }
    assert!((2..262_144).step_by(97).zip((99..262_144).step_by(97)).all(|(less, more)| cpu_weight(less) <= cpu_weight(more)));
}

#[test]
fn limits_in_the_kernels_words() {
    assert_eq!([limits::memory_limit(None), limits::memory_limit(Some(4096)), limits::memory_limit(Some(u64::MAX))], [-1, 4096, i64::MAX]);
    let pids: Vec<_> = [None, Some(0), Some(-1), Some(7)].into_iter().map(|max| limits::pids_limit(max).to_string()).collect();
    assert_eq!(pids, ["max", "max", "max", "7"]);
}

#[test]
fn only_plain_paths_are_groups() {
    let cgroups = Cgroups::detect().unwrap();
    for path in ["", "/", "/a", "a/", "a//b", "..", "a/../b", "."] {
        assert!(cgroups.group(path).is_err(), "{path:?}");
    }
}

/// A group of this test process; removed at the end, come what may.
struct Scratch(Group);

impl Scratch {
    fn new(cgroups: &Cgroups, name: &str) -> Self {
        Self(cgroups.group(&format!("skiff-test-{}-{name}", std::process::id())).unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.0.remove_tree().unwrap();
        assert!(!self.0.exists());
    }
}

/// A child that is reaped even if a test fails.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_group_is_limited_joined_read_killed_and_removed() {
    let cgroups = Cgroups::detect().unwrap();
    let pod = Scratch::new(&cgroups, "life");
    let group = cgroups.group(&format!("{}/deep/container", pod.0.path())).unwrap();
    let limits = Resources {
        memory_limit_bytes: Some(64 << 20),
        cpu_shares: Some(512),
        cpu_quota_us: Some(50_000),
        cpu_period_us: Some(100_000),
        pids_max: Some(50),
        cpuset_cpus: None,
        huge_pages: Some([(2 << 20, 8 << 20)].into()),
    };
    group.create(&limits).unwrap();
    group.create(&limits).unwrap();
    let mut sleeper = Sleeper::new();
    group.add(sleeper.pid()).unwrap();
    assert_eq!(pod.0.pids(), [sleeper.pid()]);
    let stats = group.stats().unwrap();
    assert_eq!((stats.pids, group.oom_kills()), (1, 0));
    assert!(stats.memory_bytes >= stats.working_set_bytes);
    if let Some(memory) = cgroups.layout.v1_dir("memory") {
        let read = |file: &str| std::fs::read_to_string(memory.join(group.path()).join(file)).unwrap().trim().to_owned();
        assert_eq!(read("memory.limit_in_bytes"), (64 << 20).to_string());
        group.set(&Resources { memory_limit_bytes: Some(128 << 20), ..limits.clone() }).unwrap();
        assert_eq!(read("memory.limit_in_bytes"), (128 << 20).to_string());
        group.set(&Resources::default()).unwrap();
        assert_ne!(read("memory.limit_in_bytes"), (128 << 20).to_string());
    }
    the_huge_pages_are_limited(&cgroups, &group, sleeper.pid());
    assert!(group.oom_counter().exists());
    pod.0.kill().unwrap();
    assert!(!sleeper.0.wait().unwrap().success());
    pod.0.remove_tree().unwrap();
    assert!(matches!(group.stats(), Err(RuntimeError::NotFound(_))));
    group.remove().unwrap();
    pod.0.remove_tree().unwrap();
}

/// Where the machine has the controller, in the hierarchy of v1 or the unified one.
fn the_huge_pages_are_limited(cgroups: &Cgroups, group: &Group, pid: i32) {
    let dirs = cgroups.roots().into_iter().map(|root| root.join(group.path()));
    let files = ["hugetlb.2MB.max", "hugetlb.2MB.limit_in_bytes"];
    let limited = dirs.flat_map(|dir| files.map(|file| (std::fs::read_to_string(dir.join(file)), dir.clone())));
    let limited: Vec<_> = limited.filter_map(|(limit, dir)| Some((limit.ok()?, dir))).collect();
    let is_on_v1 = cgroups.mode() != Mode::V2 && cgroups.layout.v1_dir("hugetlb").is_some();
    let has_controller = is_on_v1 || cgroups.roots().iter().any(|root| controllers::is_offered(root, "hugetlb"));
    let has_pages = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists();
    assert_eq!(!limited.is_empty(), has_controller && has_pages, "{limited:?}");
    for (limit, dir) in limited {
        assert_eq!(limit.trim(), (8 << 20).to_string(), "{}", dir.display());
        let pids = std::fs::read_to_string(dir.join("cgroup.procs")).expect("the group's processes");
        assert_eq!(pids, format!("{pid}\n"), "{}", dir.display());
    }
}

/// The CPUs that a process may use, as the kernel lists them.
fn cpus_of(pid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
}

#[test]
fn the_processes_of_a_group_run_on_its_cpus() {
    let cgroups = Cgroups::detect().unwrap();
    if !cgroups.has_cpusets() {
        return;
    }
    let all = cpus_of(std::process::id().cast_signed());
    let last = all.rsplit([',', '-']).next().unwrap().to_owned();
    let pod = Scratch::new(&cgroups, "cpuset");
    let group = |name: &str| cgroups.group(&format!("{}/{name}", pod.0.path())).unwrap();
    let (bound, free) = (group("bound"), group("free"));
    bound.create(&Resources { cpuset_cpus: Some("0".into()), ..Resources::default() }).unwrap();
    free.create(&Resources::default()).unwrap();
    let sleepers = [Sleeper::new(), Sleeper::new()];
    bound.add(sleepers[0].pid()).unwrap();
    free.add(sleepers[1].pid()).unwrap();
    assert_eq!([cpus_of(sleepers[0].pid()), cpus_of(sleepers[1].pid())], ["0", &all]);
    if let Some(cpusets) = cgroups.layout.v1_dir("cpuset") {
        assert!(!cpusets.join(free.path()).exists(), "a group without a cpuset is not made there");
    }
    bound.set_cpus(&last).unwrap();
    // Limits and CPUs are set apart.
    bound.set(&Resources::default()).unwrap();
    assert_eq!(cpus_of(sleepers[0].pid()), last);
    // A group whose processes run already gets a cpuset too.
    free.set_cpus("0").unwrap();
    assert_eq!(cpus_of(sleepers[1].pid()), "0");
    assert!(bound.set_cpus("no list").is_err());
    assert!(matches!(group("absent").set_cpus("0"), Err(RuntimeError::NotFound(_))));
    assert!(!group("absent").exists());
}

#[test]
fn a_unified_hierarchy_alone_is_joined_killed_and_removed() {
    let Some(root) =
        ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new).into_iter().find(|root| root.join("cgroup.procs").exists())
    else {
        return;
    };
    let cgroups = Cgroups::unified_at(root);
    assert_eq!(cgroups.mode(), Mode::V2);
    let pod = Scratch::new(&cgroups, "unified");
    let group = cgroups.group(&format!("{}/container", pod.0.path())).unwrap();
    group.create(&Resources::default()).unwrap();
    let mut sleepers = [Sleeper::new(), Sleeper::new()];
    for sleeper in &sleepers {
        group.add(sleeper.pid()).unwrap();
    }
    assert_eq!(pod.0.pids().len(), 2);
    assert!(group.oom_counter().ends_with("container/memory.events"));
    pod.0.kill().unwrap();
    for sleeper in &mut sleepers {
        assert!(!sleeper.0.wait().unwrap().success());
    }
}

#[test]
fn oom_counters_of_both_cgroup_versions() {
    assert_eq!(oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 3);
    assert_eq!(oom_kills("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n"), 1);
    assert_eq!(oom_kills(""), 0);
}

#[test]
fn a_thread_enters_the_groups_of_version_1() {
    let hierarchies =
        ["memory", "cpu,cpuacct", "pids", "cpuset", "freezer"].map(|names| (names, tempfile::tempdir().expect("a directory")));
    for (names, root) in &hierarchies {
        if *names != "cpuset" {
            std::fs::create_dir_all(root.path().join(CONTAINER)).expect("the container's group");
        }
    }
    let lines: String = hierarchies.iter().map(|(names, root)| mount(root.path(), "cgroup", names)).collect();
    let layout = Arc::new(Layout::parse(lines.as_bytes(), &|_| String::new()).expect("a layout"));
    let wanted: BTreeSet<_> = hierarchies.iter().take(3).map(|(_, root)| root.path().join(CONTAINER).join("tasks")).collect();
    let files = Group::new(layout.clone(), CONTAINER).own_thread_files();
    assert_eq!((files.len(), BTreeSet::from_iter(files)), (3, wanted), "each once, and none of a controller that is not ours");
    let removed = Group::new(layout.clone(), "skiff/pod/removed").own_thread_files();
    assert_eq!(removed.len(), 3, "a group that limits nothing because it is gone is an error when it is entered");
    std::fs::create_dir_all(hierarchies[3].1.path().join(CONTAINER)).expect("a cpuset");
    assert_eq!(Group::new(layout, CONTAINER).own_thread_files().len(), 4);

    let unified = tree("cpu memory pids");
    assert!(Cgroups::unified_at(unified.path()).group(CONTAINER).expect("a group").own_thread_files().is_empty());
}
