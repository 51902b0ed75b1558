//! ServiceAccount: every active namespace has the account `default`.
//!
//! Watches Namespaces and the accounts of that name. Creates the account when it is missing. Never changes or deletes one.

use std::sync::Arc;

use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::namespace::is_active;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, writes};

/// The account's name.
const DEFAULT: &str = "default";

/// The controller; its keys are namespaces' names.
pub struct ServiceAccounts {
    client: kube::Client,
    namespaces: Informer<Namespace>,
    accounts: Informer<ServiceAccount>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("serviceaccount"));
    let namespaces =
        context.feed(&queue, |change: &Change<Namespace>| change.new.iter().map(|ns| meta::name(&ns.metadata).to_owned()).collect());
    let accounts = context.feed(&queue, |change: &Change<ServiceAccount>| {
        let removed = change.old.iter().filter(|account| change.new.is_none() && meta::name(&account.metadata) == DEFAULT);
        removed.map(|account| meta::namespace(&account.metadata).to_owned()).collect()
    });
    context.run(Arc::new(ServiceAccounts { client: context.client(), namespaces, accounts }), queue);
}

/// The account to create, if the namespace lacks it.
fn plan(namespace: &Namespace, exists: bool) -> Option<ServiceAccount> {
    (is_active(namespace) && !exists).then(|| ServiceAccount {
        metadata: ObjectMeta { name: Some(DEFAULT.to_owned()), namespace: namespace.metadata.name.clone(), ..ObjectMeta::default() },
        ..ServiceAccount::default()
    })
}

impl Controller for ServiceAccounts {
    const NAME: &'static str = "serviceaccount-controller";
    const WORKERS: usize = 1;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let Some(namespace) = self.namespaces.get(&ObjectKey::new("", key)) else { return Ok(Next::OnChange) };
        let exists = self.accounts.get(&ObjectKey::new(key, DEFAULT)).is_some();
        if let Some(account) = plan(&namespace, exists) {
            match writes::create(&self.client, &account).await {
                Err(failure) if failure.is_conflict() || failure.is_namespace_terminating() => {}
                other => drop(other?),
            }
        }
        Ok(Next::OnChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_an_active_namespace_without_the_account_gets_one() {
        let namespace =
            |phase: &str| serde_json::from_value(json!({"metadata": {"name": "a"}, "status": {"phase": phase}})).expect("a Namespace");
        let made = plan(&namespace("Active"), false).expect("an account");
        assert_eq!((meta::namespace(&made.metadata), meta::name(&made.metadata)), ("a", "default"));
        assert_eq!(plan(&namespace("Active"), true), None);
        assert_eq!(plan(&namespace("Terminating"), false), None);
    }
}
