//! Modules that wait for their optimized code, in a fair order: each tenant's oldest in turn. Bounded: when there are too many, the
//! tenant with the most loses its newest. A module that is lost is added again by its next start.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::StoredModule;

/// Modules that wait in all, and those of one tenant.
const MODULES_MAX: usize = 256;
const TENANT_MODULES_MAX: usize = 16;

/// The modules. One task takes them.
#[derive(Default)]
pub(super) struct Backlog {
    queue: Mutex<Queue>,
    added: Notify,
}

impl Backlog {
    /// Adds a module unless it waits already.
    pub(super) fn add(&self, tenant: &str, module: StoredModule) {
        self.queue.lock().add(tenant, module);
        self.added.notify_one();
    }

    /// Waits for a module and takes it. Cancel-safe.
    pub(super) async fn next(&self) -> StoredModule {
        loop {
            if let Some(module) = self.queue.lock().next() {
                return module;
            }
            self.added.notified().await;
        }
    }
}

/// The tenants that have modules here, the next one first.
#[derive(Default)]
struct Queue(VecDeque<(String, VecDeque<StoredModule>)>);

impl Queue {
    fn add(&mut self, tenant: &str, module: StoredModule) {
        let index = self.0.iter().position(|(name, _)| name == tenant).unwrap_or_else(|| {
            self.0.push_back((tenant.to_owned(), VecDeque::new()));
            self.0.len() - 1
        });
        let Some((_, modules)) = self.0.get_mut(index) else { return };
        if modules.contains(&module) || modules.len() >= TENANT_MODULES_MAX {
            return;
        }
        modules.push_back(module);
        if self.0.iter().map(|(_, modules)| modules.len()).sum::<usize>() > MODULES_MAX
            && let Some((_, longest)) = self.0.iter_mut().max_by_key(|(_, modules)| modules.len())
        {
            longest.pop_back();
        }
        self.0.retain(|(_, modules)| !modules.is_empty());
    }

    fn next(&mut self) -> Option<StoredModule> {
        let (tenant, mut modules) = self.0.pop_front()?;
        let module = modules.pop_front();
        if !modules.is_empty() {
            self.0.push_back((tenant, modules));
        }
        module
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::CodeSettings;

    fn module(digest: &str) -> StoredModule {
        StoredModule { file: "module.wasm".into(), digest: digest.to_owned(), settings: CodeSettings::default() }
    }

    fn drained(queue: &mut Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.next()).map(|module| module.digest).collect()
    }

    #[test]
    fn tenants_are_served_in_rotation_and_each_module_once() {
        let mut queue = Queue::default();
        for (tenant, digest) in [("a", "a1"), ("a", "a2"), ("a", "a1"), ("b", "b1"), ("a", "a3"), ("c", "c1"), ("b", "b2")] {
            queue.add(tenant, module(digest));
        }
        assert_eq!(drained(&mut queue), ["a1", "b1", "c1", "a2", "b2", "a3"]);
    }

    #[test]
    fn a_tenant_with_very_many_modules_takes_no_room_from_others() {
        let mut queue = Queue::default();
        for number in 0..1_000 {
            queue.add("greedy", module(&format!("greedy{number}")));
        }
        queue.add("modest", module("modest"));
        let order = drained(&mut queue);
        assert_eq!((order.len(), order[1].as_str()), (TENANT_MODULES_MAX + 1, "modest"));
        for tenant in 0..1_000 {
            for number in 0..2 {
                queue.add(&format!("tenant{tenant}"), module(&format!("{tenant}-{number}")));
            }
        }
        let len = queue.0.iter().map(|(_, modules)| modules.len()).sum::<usize>();
        assert_eq!((len, queue.0.len()), (MODULES_MAX, MODULES_MAX), "memory is bounded, and whoever has two loses one first");
    }

    #[tokio::test]
    async fn a_module_that_comes_later_is_taken() {
        let backlog = Backlog::default();
        let (taken, ()) = tokio::join!(backlog.next(), async { backlog.add("a", module("late")) });
        assert_eq!(taken, module("late"));
    }
}
