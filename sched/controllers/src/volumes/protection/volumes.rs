//! Protection of bound volumes.

use std::sync::Arc;

use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::PersistentVolume;

use super::super::object;
use super::{Need, need};
use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, writes};

const FINALIZER: &str = "kubernetes.io/pv-protection";

/// The controller; its keys are volumes' names.
pub struct VolumeProtection {
    client: kube::Client,
    volumes: Informer<PersistentVolume>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("pvprotection"));
    let volumes = context.feed(&queue, |change: &Change<PersistentVolume>| {
        let needing = change.new.iter().filter(|volume| need(&volume.metadata, FINALIZER) != Need::Nothing);
        needing.map(|volume| meta::name(&volume.metadata).to_owned()).collect()
    });
    context.run(Arc::new(VolumeProtection { client: context.client(), volumes }), queue);
}

impl Controller for VolumeProtection {
    const NAME: &'static str = "persistentvolume-protection-controller";
    const WORKERS: usize = 1;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let Some(volume) = self.volumes.get(&ObjectKey::new("", key)) else { return Ok(Next::OnChange) };
        match need(&volume.metadata, FINALIZER) {
            Need::Finalizer => writes::add_finalizer(&self.client, volume.as_ref(), FINALIZER).await?,
            Need::Check if object::phase(&volume) != "Bound" => {
                drop(writes::remove_finalizer(&self.client, volume.as_ref(), FINALIZER).await?)
            }
            Need::Check | Need::Nothing => {}
        }
        Ok(Next::OnChange)
    }
}
