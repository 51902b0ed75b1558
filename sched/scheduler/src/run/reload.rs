//! Follows the file of the configuration while the scheduler runs. New arguments of the plugins that profiles declare are applied; a file
//! that cannot be used, or that changes anything else, is reported, and the configuration before it stays in use.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api_client::error::chain;
use api_client::events::Recorder;
use k8s_openapi::api::core::v1::ObjectReference;
use sched_framework::{ExternalPluginSet, ExternalPluginSpec};
use thiserror::Error;

use crate::config::{ConfigurationError, KubeSchedulerConfiguration};
use crate::metrics;

/// The time between two reads of the file. A change counts when two reads agree: the file may be in the middle of a write.
const INTERVAL: Duration = Duration::from_secs(2);

/// The content of the file, or why it could not be read.
type Content = Result<String, String>;

/// Why a file is not used.
#[derive(Debug, Error)]
enum ReloadError {
    #[error("it cannot be read: {0}")]
    Read(String),
    #[error("it is not valid")]
    Invalid(#[from] ConfigurationError),
    #[error("it changes more than the arguments of declared plugins, which needs a new start")]
    NeedsStart,
}

/// The file of a running scheduler.
pub(super) struct Reload {
    file: PathBuf,
    running: KubeSchedulerConfiguration,
    externals: Option<Arc<dyn ExternalPluginSet>>,
    recorder: Option<Recorder>,
    /// The content that was looked at last.
    latest: Option<Content>,
    /// What the plugins are run with.
    specs: Vec<ExternalPluginSpec>,
}

impl Reload {
    /// The file from which `running` was read, perhaps long ago: another scheduler may have been the leader.
    pub fn new(
        file: PathBuf,
        running: KubeSchedulerConfiguration,
        externals: Option<Arc<dyn ExternalPluginSet>>,
        recorder: Option<Recorder>,
    ) -> Self {
        let specs = running.external_plugins();
        Self { file, running, externals, recorder, latest: None, specs }
    }

    /// Reads the file from time to time, until it is dropped.
    async fn run(mut self) {
        let mut before = None;
        loop {
            let content = tokio::fs::read_to_string(&self.file).await.map_err(|error: io::Error| error.to_string());
            if before.as_ref() == Some(&content) {
                self.look(&content);
            }
            before = Some(content);
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Applies what the file contains now, if that is new.
    fn look(&mut self, content: &Content) {
        if self.latest.as_ref() == Some(content) {
            return;
        }
        self.latest = Some(content.clone());
        match self.changed_specs(content) {
            Ok(specs) if specs == self.specs => {}
            Ok(specs) => {
                tracing::info!(file = %self.file.display(), "the new arguments of scheduler plugins are used");
                metrics::reloaded(true);
                if let Some(externals) = &self.externals {
                    externals.update(specs.clone());
                }
                self.specs = specs;
            }
            Err(error) => self.report(&error),
        }
    }

    fn changed_specs(&self, content: &Content) -> Result<Vec<ExternalPluginSpec>, ReloadError> {
        let text = content.as_ref().map_err(|why| ReloadError::Read(why.clone()))?;
        self.running.changed_plugins(&KubeSchedulerConfiguration::parse(text)?).ok_or(ReloadError::NeedsStart)
    }

    /// The event says where and what. The causes, which may quote the file, are for the administrator's log alone.
    fn report(&self, error: &ReloadError) {
        let file = self.file.display();
        tracing::warn!(%file, error = chain(error), "the changed configuration of the scheduler is not used");
        metrics::reloaded(false);
        if let Some(recorder) = &self.recorder {
            let message = format!("The changed configuration {file} is not used, the one before stays in use: {error}");
            recorder.warning(&reference(), "ConfigurationNotUsed", message);
        }
    }
}

/// Follows the file, if there is one.
pub(super) async fn follow(reload: Option<Reload>) {
    match reload {
        Some(reload) => reload.run().await,
        None => std::future::pending().await,
    }
}

/// The configuration is no stored object; the event names its kind.
fn reference() -> ObjectReference {
    ObjectReference {
        api_version: Some("kubescheduler.config.k8s.io/v1".to_owned()),
        kind: Some("KubeSchedulerConfiguration".to_owned()),
        name: Some("kube-scheduler".to_owned()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests;
