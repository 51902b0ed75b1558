//! The load during a power cut: ConfigMaps are written one after the other, Deployments are rolled out again and again,
//! images are imported and compiled, Pods are created and deleted.

use std::collections::BTreeMap;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use tests::cluster::{programs, sample};
use tests::machine::{DATA, Machine};
use tests::{Kubectl, client, eventually};

/// Number of concurrent writers.
const WRITERS: u64 = 4;
/// Maximum number of writes of one writer in one round.
const WRITES_MAX: u64 = 5_000;
/// Maximum number of Pods and images in one round.
const CHURN_MAX: u64 = 40;

/// A seeded sequence (splitmix64).
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// The server's answers. For each ConfigMap: the last acknowledged value (`None`: deleted), and the value of the next
/// request if that got no answer.
#[derive(Default)]
pub struct Answered {
    values: BTreeMap<String, (Option<u64>, Option<Option<u64>>)>,
}

impl Answered {
    /// The number of objects that exist.
    pub fn len(&self) -> usize {
        self.values.values().filter(|(answered, _)| answered.is_some()).count()
    }

    /// Checks that every object has the acknowledged value, or the value of the request that was open when the power
    /// was cut.
    pub fn are_all_there(&mut self, kubectl: &Kubectl<'_>) {
        let listed = kubectl.json("get configmaps -l power=ledger");
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for object in super::list(&listed) {
            let value = object["data"]["value"].as_str().expect("a value").parse().expect("a number");
            found.insert(object["metadata"]["name"].as_str().expect("a name").to_owned(), value);
        }
        let mut lost = Vec::new();
        for (name, (answered, requested)) in &mut self.values {
            let there = found.remove(name);
            if there != *answered && Some(there) != *requested {
                lost.push(format!("{name}: {there:?}, answered was {answered:?}, asked {requested:?}"));
            }
            (*answered, *requested) = (there, None);
        }
        assert!(lost.is_empty(), "{lost:#?}");
        assert!(found.is_empty(), "nobody asked for {found:?}");
    }
}

/// A running load.
pub struct Load {
    answered: Arc<Mutex<Answered>>,
    stop: Arc<AtomicBool>,
    writers: Vec<JoinHandle<()>>,
    rollouts: JoinHandle<()>,
}

impl Load {
    /// Starts the load on a machine whose server answers.
    pub fn start(machine: &mut Machine, round: u64, answered: Answered) -> Self {
        machine.run(&format!("setsid sh -c '{}' > /dev/null 2>&1 &", images(round))).ok();
        let (answered, stop) = (Arc::new(Mutex::new(answered)), Arc::<AtomicBool>::default());
        let writers = (0..WRITERS).map(|writer| {
            let (kubeconfig, to, stopped) = (machine.kubeconfig(), answered.clone(), stop.clone());
            machine.net.enter(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(async { write(client::with(&kubeconfig).await, round, writer, &to, &stopped).await });
            })
        });
        let writers = writers.collect();
        let commands = churn(&machine.kubectl(), round);
        let stopped = stop.clone();
        let rollouts = std::thread::spawn(move || {
            for mut command in commands {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let ran: std::io::Result<Child> = command.spawn();
                ran.and_then(|mut child| child.wait()).expect("kubectl runs");
            }
        });
        Self { answered, stop, writers, rollouts }
    }

    /// Runs the load until that many more objects were written.
    pub fn until_answered(&self, more: usize) {
        let began = self.answered.lock().expect("not poisoned").len();
        eventually("writes are answered", || {
            let now = self.answered.lock().expect("not poisoned").len();
            if now >= began + more { Ok(()) } else { Err(format!("{now} after {began}")) }
        });
    }

    /// Runs the load for that time.
    pub fn runs_for(&self, time: Duration) {
        #[expect(clippy::disallowed_methods, reason = "power is cut at a moment that depends on nothing but the seed")]
        std::thread::sleep(time);
    }

    /// Ends the load; returns the server's answers.
    pub fn end(self) -> Answered {
        self.stop.store(true, Ordering::Relaxed);
        self.writers.into_iter().chain([self.rollouts]).for_each(|thread| thread.join().expect("the load ends"));
        Arc::into_inner(self.answered).expect("nobody else has it").into_inner().expect("not poisoned")
    }
}

/// Creates, changes and deletes its own objects until a request fails because the power was cut.
async fn write(client: Client, round: u64, writer: u64, answered: &Mutex<Answered>, stop: &AtomicBool) {
    let objects: Api<ConfigMap> = Api::default_namespaced(client);
    for n in 0..WRITES_MAX {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // Every object is created, then changed, and every fifth is deleted.
        let (name, step) = (format!("ledger-{round}-{writer}-{}", n / 3), n % 3);
        let wanted = match step {
            2 if (n / 3) % 5 == 0 => None,
            _ => Some(n),
        };
        answered.lock().expect("not poisoned").values.entry(name.clone()).or_default().1 = Some(wanted);
        let object = serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "labels": { "power": "ledger" } }, "data": { "value": n.to_string() } });
        let object: ConfigMap = serde_json::from_value(object).expect("a ConfigMap");
        let done = match (step, wanted) {
            (0, _) => objects.create(&PostParams::default(), &object).await.map(drop),
            (_, Some(_)) => objects.replace(&name, &PostParams::default(), &object).await.map(drop),
            (_, None) => objects.delete(&name, &DeleteParams::default()).await.map(drop),
        };
        match done {
            Ok(()) => drop(answered.lock().expect("not poisoned").values.insert(name, (wanted, None))),
            Err(kube::Error::Api(status)) => panic!("{name}: {status}"),
            // The power was cut.
            Err(_) => return,
        }
    }
}

/// Rollouts, and Pods whose images are just being imported.
fn churn(kubectl: &Kubectl<'_>, round: u64) -> Vec<std::process::Command> {
    let mut commands = Vec::new();
    for n in 0..CHURN_MAX {
        let (name, image) = (format!("churn-{round}-{n}"), format!("samples/churn:{round}-{n}"));
        let overrides = r#"{"spec":{"runtimeClassName":"wasmtime","terminationGracePeriodSeconds":1}}"#;
        let run = [
            "run",
            &name,
            "--image",
            &image,
            "--image-pull-policy=Never",
            "--restart=Never",
            "--labels=power=churn",
            "--overrides",
            overrides,
        ];
        commands.push(kubectl.command(&run));
        commands.push(kubectl.command(&["rollout", "restart", "deployment/web", "deployment/tools"]));
        if n > 1 {
            commands.push(kubectl.command(&["delete", "pod", "--wait=false", &format!("churn-{round}-{}", n - 2)]));
        }
    }
    for command in &mut commands {
        command.arg("--request-timeout=5s").stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    }
    commands
}

/// A script for the machine that imports one new module after the other: a sample with a unique custom section, so that
/// each is compiled.
fn images(round: u64) -> String {
    let (skiff, module) = (programs().join("skiff"), sample("hello.wasm"));
    format!(
        r#"for n in $(seq 0 {CHURN_MAX}); do
             {{ cat {module}; printf "\000\011\004skif%04d" $(({round} * 50 + n)); }} > /tmp/churn.wasm;
             {} image import samples/churn:{round}-$n /tmp/churn.wasm --data-dir {DATA};
           done"#,
        skiff.display()
    )
}
