//! Scenarios of shared ownership from the documents of structured-merge-diff and from upstream's tests, each on a
//! served kind.

mod hands;
mod lists;
mod records;
mod sets;

use api_model::kind;
use serde_json::json;

use super::*;

/// An object and its writes, one second after another.
struct Story {
    kind: std::sync::Arc<Kind>,
    sub: Option<&'static str>,
    object: Option<Value>,
    clock: u32,
}

impl Story {
    fn for_resource(group: &str, plural: &str) -> Self {
        Self { kind: std::sync::Arc::clone(kind::find(group, plural).expect("served")), sub: None, object: None, clock: 0 }
    }

    fn config_map() -> Self {
        Self::for_resource("", "configmaps")
    }

    fn named(&self, config: Value) -> Value {
        let mut named =
            json!({"apiVersion": self.kind.api_version(), "kind": self.kind.kind, "metadata": {"name": "x", "namespace": "ns"}});
        for (field, value) in config.as_object().expect("a map") {
            if field == "metadata" {
                named["metadata"].as_object_mut().expect("a map").extend(value.as_object().expect("a map").clone());
            } else {
                named[field] = value.clone();
            }
        }
        named
    }

    fn now(&mut self) -> String {
        self.clock += 1;
        format!("2026-01-01T00:00:{:02}Z", self.clock)
    }

    fn try_apply(&mut self, manager: &str, config: Value, force: bool) -> Result<(), String> {
        let (config, now) = (self.named(config), self.now());
        let target = Target::new(&self.kind, self.sub);
        assert_eq!(complaint(target.typing, &config), None);
        let applied = apply(&target, self.object.as_ref(), &config, Writer { manager, now: &now }, force);
        self.object = Some(applied.map_err(|error| error.to_string())?);
        Ok(())
    }

    #[track_caller]
    fn apply(&mut self, manager: &str, config: Value) -> &mut Self {
        self.try_apply(manager, config, false).expect("no conflict");
        self
    }

    #[track_caller]
    fn force(&mut self, manager: &str, config: Value) -> &mut Self {
        self.try_apply(manager, config, true).expect("force knows no conflict");
        self
    }

    #[track_caller]
    fn conflict(&mut self, manager: &str, config: Value) -> String {
        self.try_apply(manager, config, false).expect_err("a conflict")
    }

    /// Puts a whole object without `managedFields`.
    fn put(&mut self, manager: &str, object: Value) -> &mut Self {
        let (mut new, now) = (self.named(object), self.now());
        record(&Target::new(&self.kind, self.sub), self.object.as_ref(), &mut new, Writer { manager, now: &now });
        self.object = Some(new);
        self
    }

    fn object(&self) -> &Value {
        self.object.as_ref().expect("written before")
    }

    /// A field by JSON pointer.
    fn at(&self, pointer: &str) -> Value {
        self.object().pointer(pointer).cloned().unwrap_or_default()
    }

    /// The entries of the managers with their fields, one per line.
    fn owners(&self) -> Vec<String> {
        let entries = managers::stated(self.object()).cloned().unwrap_or_default();
        let line = |entry: &Value| {
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let fields = wire::decode(entry["fieldsV1"].as_object().expect("fields")).expect("a set").paths();
            let door = if text("subresource").is_empty() { String::new() } else { format!("/{}", text("subresource")) };
            format!("{} {}{door}: {}", text("manager"), text("operation"), fields.join(" "))
        };
        entries.iter().map(line).collect()
    }
}

fn deployment(replicas: Option<u32>, containers: Value) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": {"app": "x"}},
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}},
    });
    if let Some(replicas) = replicas {
        spec["replicas"] = replicas.into();
    }
    json!({ "spec": spec })
}
