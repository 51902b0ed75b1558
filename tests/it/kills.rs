//! The agent of a node is killed at each step of a Pod's life in turn: right before each system call by which it changes the
//! machine, while the Pod starts, with or without the pull of its image, while its module is compiled for the first time, while it gets a
//! debugger or other resources, and while it ends. The steps of the compiler's process count too.
//! The next agent goes on: each container has begun once, and nothing of the Pod stays. One of the Pods ends with its namespace.

mod compilation;
mod resize;
mod whole;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tests::kubectl::is_ready;
use tests::run::run;
use tests::supervisor::{Step, Supervisor};
use tests::{Cluster, Kubectl, Net, eventually};

use crate::registry::{OPEN, Registry};

/// The environment variable with the name of the Pod that is killed at every step of its life, or with [`ALL`]. Without it, all Pods are
/// killed at some steps of each part, evenly chosen.
const EVERY_STEP: &str = "SKIFF_EVERY_STEP";
const ALL: &str = "all";
/// The environment variable with the number that decides which steps are chosen; without it, the time does.
const SEED: &str = "SKIFF_KILLS_SEED";
const KILLS: usize = 5;
const NAMESPACE: &str = "doomed";
/// The ConfigMap of the Pods.
const SETTINGS: &str = "create configmap settings --from-literal=word=hello";
/// Steps of a part that has few; of each part of the Pod with most parts, whose lives take longest.
const KILLS_FEW: usize = 2;

const VOLUMES: &str = r#"
  terminationGracePeriodSeconds: 1
  volumes:
    - {name: notes, emptyDir: {}}
    - {name: fast, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
    - {name: settings, configMap: {name: settings}}
"#;

/// A WebAssembly Pod. The node has no machine code of its module when the Pod is made.
const GUEST: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: guest}
spec:
  runtimeClassName: wasmtime
  VOLUMES
  containers:
    - name: app
      image: it/waits:latest
      imagePullPolicy: Never
      volumeMounts: [{name: notes, mountPath: /notes}, {name: fast, mountPath: /fast}, {name: settings, mountPath: /settings}]
      resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 1, memory: 64Mi}}
"#;

/// A Linux Pod with users and CPUs of its own, and an init container.
const LINUX: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: linux}
spec:
  runtimeClassName: runc
  hostUsers: false
  VOLUMES
  initContainers:
    - name: first
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "echo ran > /notes/init"]
      volumeMounts: [{name: notes, mountPath: /notes}]
      resources: {limits: {cpu: 1, memory: 32Mi}}
  containers:
    - name: app
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "cat /notes/init /settings/word; echo began; while ! rm /notes/end 2>/dev/null; do sleep 0.1; done"]
      volumeMounts: [{name: notes, mountPath: /notes}, {name: fast, mountPath: /fast}, {name: settings, mountPath: /settings}]
      resources: {limits: {cpu: 1, memory: 32Mi}}
"#;

/// A Linux Pod whose image comes from a registry. The node has no image of it when the Pod is made.
const PULLED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: pulled}
spec:
  runtimeClassName: runc
  VOLUMES
  containers:
    - {name: app, image: "127.0.0.1:5000/pulled:v1", command: [sh, -c, "echo began; exec sleep 1000000"]}
"#;

/// A Linux Pod whose container is restarted for other memory.
const RESTARTED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: restarted}
spec:
  runtimeClassName: runc
  VOLUMES
  containers:
    - name: app
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "echo began; exec sleep 1000000"]
      resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
      resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 200m, memory: 64Mi}}
"#;

/// Says that it has begun, and waits for ever.
pub(crate) const WAITS: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 200) "began\0a")
  (func (export "_start")
    (i32.store (i32.const 300) (i32.const 200)) (i32.store (i32.const 304) (i32.const 6))
    (drop (call $write (i32.const 1) (i32.const 300) (i32.const 1) (i32.const 308)))
    (i64.store (i32.const 24) (i64.const -1)) (i32.store (i32.const 16) (i32.const 1))
    (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))))"#;

#[test]
fn an_agent_that_is_killed_at_any_step_of_a_pod_goes_on() {
    let mut nets = Net::joined(2).into_iter();
    let mut next = || nets.next().expect("a namespace");
    let mut server = Cluster::prepared(next(), &["server"]);
    server.start();
    let [url, token] = server.join_flags();
    let flags = ["agent", "--node-name=a", &url, &token, "--cpu-manager-policy=static", "--reserved-cpus=0"];
    let mut agent = Cluster::prepared(next(), &flags);
    let supervisor = agent.supervise();
    agent.start();
    agent.load_samples();
    import_guest(&agent);
    let kubectl = server.kubectl();
    kubectl.until_usable("default");
    kubectl.ok(SETTINGS);
    let of_namespace = server.kubectl().in_namespace(NAMESPACE);
    let chosen = std::env::var(EVERY_STEP);
    let seed = seed();
    eprintln!("to choose the same steps again: {SEED}={seed}");
    let registry = Registry::start(&agent.net, OPEN, None);
    registry.push_shell(&agent.net, "pulled", 0);
    let is_chosen = |subject: &&Subject| chosen.as_ref().map_or(true, |chosen| chosen == ALL || chosen == subject.name);
    for subject in SUBJECTS.iter().filter(is_chosen) {
        let yaml = subject.yaml.replace("VOLUMES", VOLUMES.trim());
        let kubectl = if subject.ends_with_namespace { &of_namespace } else { &kubectl };
        let mut life = Life { kubectl, supervisor: &supervisor, agent: &mut agent, subject, yaml: &yaml, seed, lives: 0 };
        life.is_killed_at_its_steps();
    }
}

fn import_guest(agent: &Cluster) {
    let work = tempfile::tempdir().expect("a directory");
    let file = work.path().join("waits.wasm");
    fs::write(&file, wat::parse_str(WAITS).expect("a module")).expect("written");
    agent.skiff(&["image", "import", "it/waits:latest", &file.display().to_string()]).ok();
}

/// A part of a Pod's life.
#[derive(Clone, Copy)]
enum Part {
    /// The start, of which only the steps in the store of images count.
    Pull,
    Start,
    Restart,
    /// An ephemeral container is added.
    Debug,
    /// A running container gets other resources.
    Resize,
    End,
}

impl Part {
    /// Whether it restarts a container of a Pod.
    fn restarts(self, pod: &str) -> bool {
        matches!(self, Self::Restart) || (matches!(self, Self::Resize) && pod == resize::RESTARTED)
    }

    /// Fewer steps are not all.
    fn steps_min(self) -> usize {
        match self {
            Self::Pull => 10,
            Self::Start => 100,
            Self::Restart => 30,
            Self::Debug => 20,
            Self::Resize => 4,
            Self::End => 50,
        }
    }
}

/// A Pod whose agent is killed.
struct Subject {
    name: &'static str,
    yaml: &'static str,
    /// What its container writes when it begins.
    log: &'static str,
    parts: &'static [Part],
    /// At how many steps of each part.
    kills: usize,
    /// The shims of its containers while it runs.
    shims: usize,
    /// It is the Pod of a namespace, which is made before it and deleted in its stead.
    ends_with_namespace: bool,
}

static SUBJECTS: [Subject; 5] = [
    Subject {
        name: "guest",
        yaml: GUEST,
        log: "began\n",
        parts: &[Part::Start, Part::Resize, Part::Restart, Part::End],
        kills: KILLS,
        shims: 1,
        ends_with_namespace: true,
    },
    Subject {
        name: "linux",
        yaml: LINUX,
        log: "ran\nhellobegan\n",
        parts: &[Part::Start, Part::Restart, Part::End],
        kills: KILLS,
        shims: 1,
        ends_with_namespace: false,
    },
    Subject {
        name: resize::RESTARTED,
        yaml: RESTARTED,
        log: "began\n",
        parts: &[Part::Start, Part::Resize, Part::End],
        kills: KILLS_FEW,
        shims: 1,
        ends_with_namespace: false,
    },
    Subject { name: "pulled", yaml: PULLED, log: "began\n", parts: &[Part::Pull], kills: KILLS, shims: 1, ends_with_namespace: false },
    Subject {
        name: whole::NAME,
        yaml: whole::YAML,
        log: whole::LOG,
        parts: &[Part::Start, Part::Debug, Part::Resize, Part::End],
        kills: KILLS_FEW,
        shims: whole::SHIMS,
        ends_with_namespace: false,
    },
];

/// One Pod that is made and deleted again and again.
struct Life<'a> {
    kubectl: &'a Kubectl<'a>,
    supervisor: &'a Supervisor,
    agent: &'a mut Cluster,
    subject: &'static Subject,
    yaml: &'a str,
    /// See [`SEED`].
    seed: usize,
    /// How often it was made.
    lives: usize,
}

impl Life<'_> {
    fn is_killed_at_its_steps(&mut self) {
        let parts = self.subject.parts;
        // The first Pod makes what stays for the next ones: the parents of cgroups.
        self.start();
        self.end();
        let before = self.left();
        let mut steps = Vec::new();
        for part in parts {
            self.supervisor.record();
            self.does(*part);
            let mut of_part = self.supervisor.recorded();
            of_part.retain(|step| !matches!(part, Part::Pull) || step.to_string().contains("/images/"));
            eprintln!("{}: {} steps", self.subject.name, of_part.len());
            assert!(of_part.len() > part.steps_min(), "the steps are seen: {of_part:#?}");
            steps.push(self.chosen(*part, &of_part));
        }
        self.end();
        assert_eq!(self.left(), before, "a Pod leaves nothing");
        let (wanted, rounds) = (steps.iter().map(Vec::len).sum::<usize>(), steps.iter().map(Vec::len).max().unwrap_or_default());
        let mut kills = vec![0; parts.len()];
        for round in 0..rounds {
            let now: Vec<_> = steps.iter().map(|steps| steps.get(round)).collect();
            for ((part, step), kills) in parts.iter().zip(&now).zip(&mut kills) {
                if matches!(part, Part::End) {
                    self.is_reported_by_the_last_agent();
                }
                *kills += usize::from(self.killed_before(*step, *part));
            }
            self.end();
            let left = self.left();
            let changed: Vec<_> = left.symmetric_difference(&before).collect();
            assert!(changed.is_empty(), "after kills before {now:?}: {changed:#?}");
            if self.subject.name == whole::NAME {
                self.claim_has_all_lives();
            }
        }
        assert!(kills.iter().all(|kills| *kills > 0), "a kill in each part: {kills:?}");
        let kills: usize = kills.iter().sum();
        eprintln!("{}: {kills} kills at {wanted} steps", self.subject.name);
        assert!((wanted - kills) * 5 <= wanted.max(10), "most steps come again: {kills} of {wanted}");
    }

    /// The steps of a part at which the agent is killed. Some of those with which a module is compiled are always among them, and leave fewer
    /// kills for the others.
    fn chosen(&self, part: Part, steps: &[Step]) -> Vec<Step> {
        let kills = if matches!(part, Part::Resize) { KILLS_FEW } else { self.subject.kills };
        let (of_compilation, others) = compilation::parted(steps);
        let compiles = self.subject.name == "guest" && matches!(part, Part::Start);
        let by_compiler = of_compilation.iter().any(Step::is_of_compiler);
        assert_eq!((of_compilation.len() > compilation::STEPS_MIN, by_compiler), (compiles, compiles), "{of_compilation:#?}");
        let mut steps = chosen(&of_compilation, KILLS_FEW, self.seed);
        steps.extend(chosen(&others, kills.saturating_sub(steps.len()).max(1), self.seed));
        steps
    }

    /// Does a part of the Pod's life and kills the agent at a step of it. Returns whether the step came.
    fn killed_before(&mut self, step: Option<&Step>, part: Part) -> bool {
        let Some(step) = step else {
            self.does(part);
            return false;
        };
        eprintln!("{}: {step}", self.subject.name);
        self.supervisor.kill_before(step);
        self.does(part);
        self.supervisor.disarm()
    }

    /// The status may be that of an agent that was killed after it had written it, until the next one has seen a newer spec. That agent
    /// begins nothing again.
    fn is_reported_by_the_last_agent(&mut self) {
        let name = self.subject.name;
        let before = resize::ids(&self.status());
        self.kubectl.ok(&format!("patch pod {name} --patch {}", json!({"spec": {"activeDeadlineSeconds": 100_000}})));
        self.until("is reported by the last agent", |life| {
            let pod = life.kubectl.json(&format!("get pod {name}"));
            let is_seen = pod["status"]["observedGeneration"] == pod["metadata"]["generation"];
            if is_seen && is_ready(&pod) { Ok(()) } else { Err(format!("{:#}", pod["status"])) }
        });
        let status = self.status();
        let restarts = self.subject.parts.iter().filter(|part| part.restarts(name)).count() as u64;
        assert_eq!((resize::ids(&status), restarts_of(&status)), (before, restarts), "{}", self.agent.log());
    }

    fn does(&mut self, part: Part) {
        match part {
            Part::Pull | Part::Start => self.start(),
            Part::Restart => self.restart(),
            Part::Debug => self.debug(),
            Part::Resize => self.resize(),
            Part::End => self.end(),
        }
    }

    fn start(&mut self) {
        compilation::forget(self.agent.data_dir());
        if self.subject.ends_with_namespace {
            self.kubectl.ok(&format!("create namespace {NAMESPACE}"));
            self.kubectl.until_usable(NAMESPACE);
            self.kubectl.ok(SETTINGS);
        }
        self.kubectl.apply(self.yaml).ok();
        self.lives += 1;
        self.until_it_runs(0);
    }

    /// The container ends, and is started again by its Pod's restart policy.
    fn restart(&mut self) {
        if self.subject.name == "guest" {
            run(Command::new("kill").arg("-KILL").args(self.agent.shims()), None).ok();
        } else {
            let uid = self.kubectl.uid(self.subject.name);
            let notes = format!("kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/notes");
            fs::write(self.agent.data_dir().join(notes).join("end"), "").expect("written");
        }
        self.until_it_runs(1);
    }

    /// Waits until the container runs after that many restarts, and has begun once since the last. No other container starts again.
    fn until_it_runs(&mut self, restarts: u64) {
        self.until("runs", |life| {
            let pod = life.kubectl.json(&format!("get pod {}", life.subject.name));
            let status = &pod["status"]["containerStatuses"][0];
            let log = life.kubectl.run(&["logs", life.subject.name]).stdout;
            let counts = status["restartCount"] == restarts && restarts_of(&pod["status"]) == restarts;
            let runs = status["ready"] == true && counts && log == life.subject.log;
            if runs { Ok(()) } else { Err(format!("{log}\n{:#}", pod["status"])) }
        });
        assert_eq!(self.agent.shims().len(), self.subject.shims, "{}", self.agent.log());
    }

    /// The Pod may be gone already. The image of the one that pulls goes, too.
    fn end(&mut self) {
        let with_namespace = self.subject.ends_with_namespace;
        let deleted = if with_namespace { format!("namespace {NAMESPACE}") } else { format!("pod {}", self.subject.name) };
        self.kubectl.ok(&format!("delete {deleted} --wait=false --ignore-not-found"));
        self.until("is gone", |life| {
            let pods = life.kubectl.ok("get pods -o name");
            let namespace_next = pods.is_empty() && with_namespace;
            let left = if namespace_next { life.kubectl.ok(&format!("get {deleted} -o name --ignore-not-found")) } else { pods };
            if left.is_empty() && life.agent.shims().is_empty() { Ok(()) } else { Err(left) }
        });
        if self.subject.name == "pulled" && self.agent.skiff(&["image", "list"]).ok().contains(OPEN) {
            self.agent.skiff(&["image", "rm", &format!("{OPEN}/pulled:v1")]).ok();
        }
    }

    /// Waits for a state of the Pod, and starts the agent again when it is killed.
    fn until<T>(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> Result<T, String>) {
        eventually(&format!("the Pod {} {what}", self.subject.name), || {
            if !self.agent.is_running() {
                self.agent.start_again();
            }
            is_so(self).map_err(|error| format!("{error}\n{}", self.agent.log()))
        });
    }

    /// The files, directories, mounts, links, cgroups and compilers of the node, when it has come to rest.
    fn left(&self) -> BTreeSet<String> {
        let mut last = BTreeSet::new();
        eventually("the node comes to rest", || {
            let left = self.left_now();
            let rests = left == last;
            last = left;
            if rests { Ok(()) } else { Err("it changes".to_owned()) }
        });
        last
    }

    fn left_now(&self) -> BTreeSet<String> {
        let data_dir = self.agent.data_dir();
        let run_dir = fs::read_link(data_dir.join("run")).expect("it has run");
        let mut left = BTreeSet::new();
        for hierarchy in fs::read_dir("/sys/fs/cgroup").expect("cgroups").flatten() {
            walk(&hierarchy.path().join("skiff").join(run_dir.file_name().expect("a prefix")), &mut left);
        }
        walk(data_dir, &mut left);
        walk(&run_dir, &mut left);
        let ours = |path: &&str| [data_dir, &run_dir].iter().any(|dir| path.starts_with(&dir.display().to_string()));
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        left.extend(mounts.lines().filter_map(|line| line.split(' ').nth(4)).filter(ours).map(|path| format!("mount {path}")));
        let links = self.agent.net.run("ip", &["-o", "link"]).ok();
        left.extend(links.lines().filter_map(|line| line.split(": ").nth(1)).map(|link| format!("link {link}")));
        left.extend(compilation::compilers(&self.agent.net).map(|pid| format!("compiler {pid}")));
        left
    }
}

/// How often all containers of a Pod were restarted.
fn restarts_of(status: &Value) -> u64 {
    let lists = ["initContainerStatuses", "containerStatuses"];
    lists.iter().flat_map(|list| status[*list].as_array().into_iter().flatten()).filter_map(|one| one["restartCount"].as_u64()).sum()
}

/// All paths below a directory. Of cgroups, only directories: the kernel makes the files in them.
pub(crate) fn walk(dir: &Path, into: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, is_dir) = (entry.path(), entry.file_type().is_ok_and(|kind| kind.is_dir()));
        if is_dir {
            walk(&path, into);
        }
        if is_dir || !path.starts_with("/sys/fs/cgroup") {
            into.insert(path.display().to_string());
        }
    }
}

/// All steps, or that many at most, evenly chosen from one on that follows from the seed.
fn chosen(steps: &[Step], kills: usize, seed: usize) -> Vec<Step> {
    let every = if std::env::var_os(EVERY_STEP).is_some() { 1 } else { steps.len().div_ceil(kills).max(1) };
    steps.iter().skip(seed % every).step_by(every).cloned().collect()
}

fn seed() -> usize {
    let from_time = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs().to_string();
    std::env::var(SEED).unwrap_or_else(|_| from_time()).parse().expect("a number")
}
