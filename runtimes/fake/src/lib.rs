//! A runtime without processes, for tests and thousand-node trials. A script (a function of the container's spec) decides what
//! each container does; time is tokio's, so a paused clock makes every run the same; faults are injected by operation.
//!
//! Containers live in a [`World`]. A second [`FakeRuntime`] over the same world is what a restarted
//! agent sees.

mod container;
mod script;
mod world;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use runtimes_contract::{
    AttachSession, ContainerId, ContainerSpec, ContainerStatus, Content, ContentKind, ExecSession, ExecSpec, Exit, HttpRequests,
    Preparation, Runtime, RuntimeError, Stats,
};
use tokio::time::Instant;

pub use script::{Behaviour, ExecReply, Fault, Operation, Script};
pub use world::World;

/// Runs nothing.
#[derive(Clone)]
pub struct FakeRuntime {
    handler: &'static str,
    kind: ContentKind,
    world: Arc<World>,
}

impl FakeRuntime {
    /// A runtime for a handler and a kind of content, over a world.
    pub fn new(handler: &'static str, kind: ContentKind, world: Arc<World>) -> Self {
        Self { handler, kind, world }
    }

    fn fits(&self, content: &Content) -> Result<(), RuntimeError> {
        if content.kind() == self.kind {
            return Ok(());
        }
        Err(RuntimeError::BadContent(format!("runtime handler {} does not run {:?} content", self.handler, content.kind())))
    }
}

#[async_trait]
impl Runtime for FakeRuntime {
    fn handler(&self) -> &'static str {
        self.handler
    }

    fn runs(&self) -> ContentKind {
        self.kind
    }

    fn mounts_recursively_read_only(&self) -> bool {
        true
    }

    fn supports_user_namespaces(&self, _dirs: &[&Path]) -> Result<(), RuntimeError> {
        self.world.supports_user_namespaces(self.handler)
    }

    async fn check(&self) -> Result<(), RuntimeError> {
        self.world.pass(Operation::Check).await
    }

    async fn preparation(&self, _spec: &ContainerSpec) -> Result<Option<Preparation>, RuntimeError> {
        Ok(self.world.preparation())
    }

    async fn prepare(&self, spec: &ContainerSpec, _tenant: &str) -> Result<Duration, RuntimeError> {
        let begun = Instant::now();
        self.world.pass(Operation::Prepare).await?;
        self.fits(&spec.content)?;
        Ok(begun.elapsed())
    }

    async fn create(&self, spec: &ContainerSpec) -> Result<(), RuntimeError> {
        self.world.pass(Operation::Create).await?;
        self.fits(&spec.content)?;
        self.world.create(spec)
    }

    async fn start(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.world.pass(Operation::Start).await?;
        self.world.start(id)
    }

    async fn signal(&self, id: &ContainerId, signal: i32) -> Result<(), RuntimeError> {
        self.world.pass(Operation::Signal).await?;
        self.world.signal(id, signal)
    }

    async fn wait(&self, id: &ContainerId) -> Result<Exit, RuntimeError> {
        self.world.pass(Operation::Wait).await?;
        self.world.wait(id).await
    }

    async fn remove(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.world.pass(Operation::Remove).await?;
        self.world.remove(id);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<ContainerStatus>, RuntimeError> {
        self.world.pass(Operation::List).await?;
        Ok(self.world.list())
    }

    async fn set_cpus(&self, id: &ContainerId, cpus: &str) -> Result<(), RuntimeError> {
        self.world.pass(Operation::SetCpus).await?;
        self.world.set_cpus(id, cpus)
    }

    async fn reopen_log(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.world.pass(Operation::ReopenLog).await?;
        self.world.check_exists(id)
    }

    async fn exec(&self, id: &ContainerId, exec: ExecSpec) -> Result<ExecSession, RuntimeError> {
        self.world.pass(Operation::Exec).await?;
        self.world.exec(id, &exec)
    }

    async fn attach(&self, id: &ContainerId, stdin: bool) -> Result<AttachSession, RuntimeError> {
        self.world.pass(Operation::Attach).await?;
        self.world.attach(id, stdin)
    }

    async fn stats(&self, id: &ContainerId) -> Result<Stats, RuntimeError> {
        self.world.pass(Operation::Stats).await?;
        self.world.stats(id)
    }

    async fn http_requests(&self, id: &ContainerId) -> Result<Option<HttpRequests>, RuntimeError> {
        self.world.http_requests(id)
    }
}

#[cfg(test)]
mod tests;
