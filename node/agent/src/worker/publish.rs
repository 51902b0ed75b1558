//! What the worker's Pod is by now, for the rest of the node and for the API.

use std::sync::Arc;

use super::Worker;
use crate::node::{Entry, Instance};
use crate::record::{Clean, SandboxState};
use crate::static_pods::Origin;
use crate::status;

impl Worker {
    /// Publishes the running containers and passes the status to its writer.
    pub(super) fn show(&mut self) {
        let status = Arc::new(status::compute(&self.pod, &self.record, self.node.host(), api_clock::now()));
        self.measure_first_run(&status);
        let containers = self.record.containers.iter().map(|(name, record)| {
            let running = record.alive().map(|alive| (alive.id.clone(), alive.handler.clone()));
            (name.clone(), Instance { running, attempt: record.restarts() })
        });
        let sandbox = self.record.ready_sandbox();
        let entry = Entry {
            pod: self.pod.clone(),
            is_static: self.effects.origin == Origin::File,
            sandbox: sandbox.map(|sandbox| sandbox.sandbox.clone()),
            ip: sandbox.map(|sandbox| sandbox.ip),
            containers: containers.collect(),
            status: status.clone(),
            is_clean: self.record.clean == Clean::Done,
            is_reported: self.writer.status().as_ref() == Some(&status) && self.writer.is_written(),
            probe_results: self.effects.probe_results.clone(),
        };
        self.node.directory.publish(&self.name.uid, entry);
        let sandbox_unknown =
            matches!(self.record.sandbox, SandboxState::Making) && self.record.containers.values().any(|record| record.alive().is_some());
        // An adopted Pod's status is whole only when its base has been found again.
        if !self.record.delete_sent && !self.record.gone && !self.record.ended_before && !sandbox_unknown {
            let observed = std::mem::take(&mut self.redelivered).then_some(&*self.pod);
            self.writer.set(status, observed);
        }
    }
}
