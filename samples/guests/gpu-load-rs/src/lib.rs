//! The `gpu-load` plugin in Rust: prefers nodes whose GPUs have little to do, by a label from 0 to 100. Nodes without the label are
//! ruled out for Pods that request a GPU.

wit_bindgen::generate!({ path: "../../../sched/wasm/wit", world: "filter-score-plugin" });

use std::sync::OnceLock;

use exports::skiff::scheduler::{filter, plugin, score};
use skiff::scheduler::host::{log, Level};
use skiff::scheduler::types::{Node, Pod};

/// The highest load.
const FULL: i64 = 100;

/// The plugin's arguments.
struct Args {
    label: String,
    resource: String,
}

static ARGS: OnceLock<Args> = OnceLock::new();

struct GpuLoad;

impl plugin::Guest for GpuLoad {
    fn init(args: String) -> Result<plugin::Settings, String> {
        let args: serde_json::Value = serde_json::from_str(&args).map_err(|error| error.to_string())?;
        let text = |name: &str, default: &str| args[name].as_str().unwrap_or(default).to_owned();
        let args = Args { label: text("label", "gpu.example.com/load"), resource: text("resource", "example.com/gpu") };
        log(Level::Info, &format!("nodes are ranked by {}", args.label));
        ARGS.set(args).map_err(|_| "init is called once".to_owned())?;
        Ok(plugin::Settings { scope: plugin::Scope::Node, normalization: plugin::Normalization::None })
    }
}

impl filter::Guest for GpuLoad {
    fn filter(pod: Pod, nodes: Vec<Node>) -> Vec<filter::Verdict> {
        let args = ARGS.get().expect("init was called");
        let wants_gpu = pod.requests.scalar.iter().any(|(name, amount)| *name == args.resource && *amount > 0);
        let verdict = |node: &Node| match load(node, &args.label) {
            None if wants_gpu => filter::Verdict::UnschedulableAndUnresolvable(vec![format!("node(s) had no label {}", args.label)]),
            _ => filter::Verdict::Success,
        };
        nodes.iter().map(verdict).collect()
    }
}

impl score::Guest for GpuLoad {
    fn score(_: Pod, nodes: Vec<Node>) -> Vec<i64> {
        let args = ARGS.get().expect("init was called");
        nodes.iter().map(|node| FULL - load(node, &args.label).unwrap_or(FULL)).collect()
    }
}

/// The load that the label says, from 0 to 100.
fn load(node: &Node, label: &str) -> Option<i64> {
    let (_, value) = node.labels.iter().find(|(key, _)| key == label)?;
    value.parse::<i64>().ok().map(|load| load.clamp(0, FULL))
}

export!(GpuLoad);
