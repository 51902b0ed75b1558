//! The enabled plugins in upstream's order.

use std::sync::Arc;

use api_model::view::View;
use thiserror::Error;

use crate::denied::Denied;
use crate::plugin::{Allows, Plugin};
use crate::plugins;
use crate::request::Request;

/// The name of a plugin to disable is unknown.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("admission-control plugin {0:?} is unknown")]
pub struct UnknownPlugin(pub String);

/// Checks that upstream has a plugin of that name, and returns the name.
pub fn known_plugin(name: &str) -> Result<String, UnknownPlugin> {
    let nobody: Allows = Arc::new(|_, _, _| false);
    let mut names = plugins::ABSENT.iter().chain(plugins::ELSEWHERE);
    let is_known = names.any(|known| *known == name) || plugins::all(nobody, false).iter().any(|plugin| plugin.name() == name);
    if is_known { Ok(name.to_owned()) } else { Err(UnknownPlugin(name.to_owned())) }
}

/// The enabled plugins.
pub struct Chain {
    plugins: Vec<Box<dyn Plugin>>,
}

impl Chain {
    /// The implemented plugins that upstream enables by default, and NodeRestriction and DenyServiceExternalIPs, without
    /// the disabled ones. `mirror_pods` says whether nodes may create mirror Pods.
    pub fn new(disabled: &[String], allows: Allows, mirror_pods: bool) -> Result<Self, UnknownPlugin> {
        for name in disabled {
            known_plugin(name)?;
        }
        let mut plugins = plugins::all(allows, mirror_pods);
        plugins.retain(|plugin| !disabled.iter().any(|name| name == plugin.name()));
        Ok(Self { plugins })
    }

    /// The mutating step. Returns warnings for the client.
    pub fn admit(&self, request: &mut Request<'_>, view: &dyn View) -> Result<Vec<String>, Denied> {
        let mut warnings = Vec::new();
        for plugin in &self.plugins {
            plugin.admit(request, view, &mut warnings)?;
        }
        Ok(warnings)
    }

    /// The validating step, on the final object. Returns warnings for the client.
    pub fn validate(&self, request: &Request<'_>, view: &dyn View) -> Result<Vec<String>, Denied> {
        let mut warnings = Vec::new();
        for plugin in &self.plugins {
            plugin.validate(request, view, &mut warnings)?;
        }
        Ok(warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(disabled: &[&str]) -> Result<Vec<&'static str>, UnknownPlugin> {
        let disabled: Vec<String> = disabled.iter().map(|&name| name.to_owned()).collect();
        Chain::new(&disabled, Arc::new(|_, _, _| true), false).map(|chain| chain.plugins.iter().map(|plugin| plugin.name()).collect())
    }

    #[test]
    fn the_order_is_upstreams() {
        let wanted = "NamespaceLifecycle LimitRanger ServiceAccount NodeRestriction TaintNodesByCondition PodSecurity Priority DefaultTolerationSeconds DefaultStorageClass PersistentVolumeClaimResize RuntimeClass CertificateApproval CertificateSigning ClusterTrustBundleAttest CertificateSubjectRestriction DefaultIngressClass DenyServiceExternalIPs PodTopologyLabels";
        assert_eq!(names(&[]).expect("known").join(" "), wanted);
    }

    #[test]
    fn plugins_can_be_switched_off_by_name() {
        let left = names(&["Priority", "AlwaysPullImages", "Priority"]).expect("known");
        assert!(!left.contains(&"Priority") && left.contains(&"PodSecurity"));
        assert_eq!(names(&["Priorities"]).expect_err("unknown").to_string(), "admission-control plugin \"Priorities\" is unknown");
    }
}
