//! The scheduler's side of a plugin.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runtimes_host::helper::Helper;
use runtimes_wasmtime::{Components, serve_compile};
use sched_framework::{
    CycleState, ExternalPlugin, ExternalPluginSet, ExternalPluginSpec, ExternalPlugins, ExternalPoints, FailurePolicy, ImagePullPolicy,
    NodeInfo, PodInfo, Status,
};
use sched_wasm::{Images, ImagesError, Module, WasmPlugins};
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// The test program is its own compiler: started with this argument it serves before any test begins.
const SERVE: &str = "serve-compile";

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_TESTS: extern "C" fn() = before_tests;

/// The C library has given the arguments to the standard library by now.
extern "C" fn before_tests() {
    if std::env::args().nth(1).as_deref() == Some(SERVE) {
        serve_compile();
    }
}

/// One image that tests replace.
#[derive(Clone)]
pub struct Image {
    dir: Arc<tempfile::TempDir>,
    module: Arc<Mutex<Result<Module, String>>>,
    reads: Arc<AtomicUsize>,
}

impl Image {
    /// The image with these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let module = Arc::new(Mutex::new(Err("no such image".into())));
        let image = Self { dir: Arc::new(tempfile::tempdir().unwrap()), module, reads: Arc::default() };
        image.set(bytes);
        image
    }

    /// Replaces the module.
    pub fn set(&self, bytes: &[u8]) {
        let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let file: PathBuf = self.dir.path().join(&digest);
        std::fs::write(&file, bytes).unwrap();
        *self.module.lock().unwrap() = Ok(Module { file, digest });
    }

    /// Waits until the image was read again, and what was read then was loaded or not.
    pub async fn checked(&self) {
        let before = self.reads.load(Ordering::SeqCst);
        tokio::time::timeout(Duration::from_secs(30), async {
            while self.reads.load(Ordering::SeqCst) < before + 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("the image is read again");
    }

    /// From here on the registry does not answer.
    pub fn break_off(&self) {
        *self.module.lock().unwrap() = Err("the registry does not answer".into());
    }
}

impl Images for Image {
    fn module<'a>(&'a self, _: &'a ExternalPluginSpec) -> Pin<Box<dyn Future<Output = Result<Module, ImagesError>> + Send + 'a>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let module = self.module.lock().unwrap().clone();
        Box::pin(async move { module.map_err(Into::into) })
    }
}

/// A declaration; tests change it.
pub fn spec() -> ExternalPluginSpec {
    ExternalPluginSpec {
        name: "Tested",
        image: "tested:latest".into(),
        pull_policy: ImagePullPolicy::IfNotPresent,
        registry_config_file: None,
        failure_policy: FailurePolicy::Fail,
        fuel: 1_000_000,
        memory_bytes: 64 << 20,
        timeout: Duration::from_secs(1),
        refresh_interval: Duration::from_millis(20),
        args: "{}".into(),
        required: ExternalPoints::default(),
    }
}

/// A plugin that follows its image.
pub struct Running {
    pub plugin: Arc<dyn ExternalPlugin>,
    pub image: Image,
    set: Arc<dyn ExternalPluginSet>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    /// Waits until the image was read once.
    pub async fn start(bytes: &[u8], spec: ExternalPluginSpec) -> Self {
        let image = Image::new(bytes);
        let compiler = Helper::new(std::env::current_exe().unwrap(), &[SERVE]);
        let components = Components::open(&image.dir.path().join("compiled"), compiler).unwrap();
        let set = WasmPlugins::new(components, Arc::new(image.clone())).open(vec![spec]);
        let (plugin, loading) = (set.plugins().remove(0), set.clone());
        let task = tokio::spawn(async move { loading.run().await });
        while !set.is_ready() {
            set.changed().await;
        }
        Self { plugin, image, set, task }
    }

    /// Declares the plugin anew.
    pub fn declare(&self, spec: ExternalPluginSpec) {
        self.set.update(vec![spec]);
    }

    /// Waits until the present declaration was tried: the first look may still be that of the one before.
    pub async fn checked(&self) {
        self.image.checked().await;
        self.image.checked().await;
    }

    /// Waits for the next version.
    pub async fn changed(&self) {
        tokio::time::timeout(Duration::from_secs(30), self.set.changed()).await.expect("a new version is loaded");
    }

    /// The status of the Pod on the node in a new cycle, or why the cycle fails.
    pub fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Result<Status, String> {
        self.plugin.begin_cycle();
        let status = self.plugin.filter(&CycleState::default(), pod, node);
        self.plugin.failure().map_or(Ok(status), Err)
    }

    /// The scaled scores of the nodes in a new cycle, or why the cycle fails.
    pub fn scores(&self, pod: &PodInfo, nodes: &[NodeInfo]) -> Result<Vec<i64>, String> {
        self.plugin.begin_cycle();
        let (mut state, feasible): (_, Vec<&NodeInfo>) = (CycleState::default(), nodes.iter().collect());
        let scores = match self.plugin.pre_score(&mut state, pod, &feasible) {
            false => vec![0; nodes.len()],
            true => {
                let raw: Vec<_> = nodes.iter().map(|node| self.plugin.score(&state, pod, node)).collect();
                self.plugin.normalization().scale(&raw)
            }
        };
        self.plugin.failure().map_or(Ok(scores), Err)
    }
}

/// A Pod of that name.
pub fn pod(name: &str) -> PodInfo {
    let object = json!({"metadata": {"name": name, "namespace": "default", "uid": name, "annotations": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "example.com/gpu": "2"}}}],
            "tolerations": [{"key": "k", "operator": "Exists"}]}});
    PodInfo::new(&serde_json::from_value(object).unwrap())
}

/// A node with so many labels.
pub fn node(name: &str, labels: usize) -> NodeInfo {
    let labels: serde_json::Map<_, _> = (0..labels).map(|n| (format!("label-{n}"), json!("value"))).collect();
    let object = json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
    let mut info = NodeInfo::named(name);
    info.set_node(&serde_json::from_value(object).unwrap());
    info
}
