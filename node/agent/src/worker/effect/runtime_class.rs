//! The RuntimeClass of a Pod's sandbox. As upstream, it is looked up when the sandbox is created: a class that is changed or deleted
//! later means nothing to the Pods that have a sandbox. The answer is in the file `runtime-class.json` of the Pod's directory, so that it
//! outlives the agent. No sandbox outlives the machine's boot, whose id the file has.

use std::io;
use std::path::Path;

use runtimes_host::files::{PRIVATE, write_volatile};
use serde::{Deserialize, Serialize};

use super::Effects;
use super::sandbox::SandboxError;
use crate::container::wasm_settings;
use crate::layout::PodName;
use crate::record::SandboxClass;

/// The file in a Pod's directory.
const FILE: &str = "runtime-class.json";

/// The content of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClassRecord {
    boot_id: String,
    class: SandboxClass,
}

impl Effects {
    /// The class of the Pod's sandbox, if the Pod names one. A sandbox that is made anew has the class as it is now.
    pub(super) async fn runtime_class(&self, is_new: bool) -> Result<Option<SandboxClass>, SandboxError> {
        let name = self.pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.clone()).filter(|name| !name.is_empty());
        let Some(name) = name else { return Ok(None) };
        let recorded = if is_new { None } else { self.recorded_class(&name).await };
        let class = match recorded {
            Some(class) => class,
            None => self.present_class(name).await?,
        };
        if self.node.parts.by_handler(&class.handler).is_none() {
            return Err(SandboxError::NoRuntime(class.handler));
        }
        Ok(Some(class))
    }

    async fn present_class(&self, name: String) -> Result<SandboxClass, SandboxError> {
        let class = self.node.objects.class(&name).await.map_err(SandboxError::Api)?;
        let class = class.ok_or_else(|| SandboxError::NoRuntimeClass(name.clone()))?;
        Ok(SandboxClass { name, handler: class.handler.clone(), wasm_settings: wasm_settings::annotations(&class.metadata) })
    }

    /// The class with which the sandbox was created that the Pod has since then.
    async fn recorded_class(&self, name: &str) -> Option<SandboxClass> {
        let path = self.node.layout.pod_file(&PodName::of(&self.pod).uid, FILE);
        let read = api_tasks::blocking("node-agent/read-runtime-class", move || {
            let record = read(&path);
            record
                .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "the RuntimeClass of a sandbox is looked up again"))
                .ok()
        });
        let record = read.await.ok()??;
        record.filter(|record| record.boot_id == self.node.machine.boot_id && record.class.name == name).map(|record| record.class)
    }

    /// Records the class of a sandbox that exists now.
    pub(super) async fn record_class(&self, class: Option<&SandboxClass>) -> Result<(), SandboxError> {
        let Some(class) = class else { return Ok(()) };
        let path = self.node.layout.pod_file(&PodName::of(&self.pod).uid, FILE);
        let record = ClassRecord { boot_id: self.node.machine.boot_id.clone(), class: class.clone() };
        let of_error = path.clone();
        let written = api_tasks::blocking("node-agent/write-runtime-class", move || {
            let text = serde_json::to_vec(&record)?;
            if std::fs::read(&path).is_ok_and(|present| present == text) { Ok(()) } else { write_volatile(&path, &text, PRIVATE) }
        });
        match written.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(SandboxError::File { path: of_error, error }),
            Err(_) => Err(SandboxError::Interrupted),
        }
    }
}

/// The content of a file; `None` when there is no file. Blocks.
fn read(path: &Path) -> io::Result<Option<ClassRecord>> {
    match std::fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
