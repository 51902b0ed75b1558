use parking_lot::Mutex;
use sched_framework::{ExternalPlugin, Pending};
use serde_json::{Value, json};

use super::*;

/// Keeps the updates.
#[derive(Default)]
struct Updates(Mutex<Vec<Vec<ExternalPluginSpec>>>);

impl ExternalPluginSet for Updates {
    fn plugins(&self) -> Vec<Arc<dyn ExternalPlugin>> {
        Vec::new()
    }

    fn update(&self, specs: Vec<ExternalPluginSpec>) {
        self.0.lock().push(specs);
    }

    fn run(&self) -> Pending<'_> {
        Box::pin(std::future::pending())
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn changed(&self) -> Pending<'_> {
        Box::pin(std::future::pending())
    }
}

/// A configuration with a plugin in each of two profiles.
fn configuration() -> Value {
    let profile = |name: &str| {
        let args = json!({"apiVersion": "scheduler.skiff/v1alpha1", "kind": "WasmPluginArgs", "image": format!("{name}:v1")});
        json!({"schedulerName": name, "plugins": {"score": {"enabled": [{"name": "Own", "weight": 2}]}},
            "pluginConfig": [{"name": "Own", "args": args}, {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 3}}]})
    };
    json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile("a"), profile("b")]})
}

fn changed(pointer: &str, value: Value) -> String {
    let mut file = configuration();
    *file.pointer_mut(pointer).expect("in the file") = value;
    file.to_string()
}

fn reload() -> (Reload, Arc<Updates>) {
    let updates = Arc::new(Updates::default());
    let running = KubeSchedulerConfiguration::parse(&configuration().to_string()).expect("valid");
    (Reload::new("scheduler.yaml".into(), running, Some(updates.clone()), None), updates)
}

const IMAGE: &str = "/profiles/1/pluginConfig/0/args/image";

#[test]
fn new_arguments_of_declared_plugins_are_applied_once() {
    let (mut reload, updates) = reload();
    reload.look(&Ok(configuration().to_string()));
    assert!(updates.0.lock().is_empty(), "the file is as it was at the start");
    for _ in 0..2 {
        reload.look(&Ok(changed(IMAGE, json!("b:v2"))));
    }
    let images: Vec<Vec<String>> = updates.0.lock().iter().map(|specs| specs.iter().map(|spec| spec.image.clone()).collect()).collect();
    assert_eq!(images, [["a:v1", "b:v2"]]);
    reload.look(&Ok(configuration().to_string()));
    assert_eq!(updates.0.lock().len(), 2, "also when they are as before");
    let mut file = configuration();
    file["profiles"][1]["pluginConfig"].as_array_mut().expect("a list").reverse();
    reload.look(&Ok(file.to_string()));
    assert_eq!(updates.0.lock().len(), 2, "the order of the arguments says nothing");
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing() {
    let (mut reload, updates) = reload();
    let text = |pointer, value| Ok(changed(pointer, value));
    let wrong: [(Content, &str); 6] = [
        (Err("gone".to_owned()), "it cannot be read: gone"),
        (Ok("{".to_owned()), "it is not valid"),
        (text(IMAGE, json!("")), "it is not valid"),
        (text("/profiles/0/schedulerName", json!("c")), "it changes more than the arguments of declared plugins, which needs a new start"),
        (text("/profiles/0/plugins/score/enabled/0/weight", json!(3)), "it changes more"),
        (text("/profiles/0/pluginConfig/1/args/hardPodAffinityWeight", json!(4)), "it changes more"),
    ];
    for (file, wanted) in wrong {
        let error = reload.changed_specs(&file);
        assert!(error.as_ref().is_err_and(|error| error.to_string().starts_with(wanted)), "{wanted}: {error:?}");
        reload.look(&file);
    }
    assert!(updates.0.lock().is_empty());
    reload.look(&Ok(changed(IMAGE, json!("b:v2"))));
    assert_eq!(updates.0.lock().len(), 1, "a correct file is used again");
}
