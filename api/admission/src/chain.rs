//! The plugins in upstream's order, less those switched off.

use std::sync::Arc;

use api_model::view::View;
use thiserror::Error;

use crate::denied::Denied;
use crate::plugin::{Allows, Plugin};
use crate::plugins;
use crate::request::Request;

/// A name that is no plugin's was to be switched off.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("admission-control plugin {0:?} is unknown")]
pub struct UnknownPlugin(pub String);

/// The name of a plugin, if it is one of upstream's.
pub fn known_plugin(name: &str) -> Result<String, UnknownPlugin> {
    let nobody: Allows = Arc::new(|_, _, _| false);
    let mut names = plugins::ABSENT.iter().chain(plugins::ELSEWHERE);
    let is_known = names.any(|known| *known == name) || plugins::all(nobody).iter().any(|plugin| plugin.name() == name);
    if is_known { Ok(name.to_owned()) } else { Err(UnknownPlugin(name.to_owned())) }
}

/// The plugins that are on.
pub struct Chain {
    plugins: Vec<Box<dyn Plugin>>,
}

impl Chain {
    /// All plugins that upstream has on by default and that are built here, and NodeRestriction and
    /// DenyServiceExternalIPs, less the disabled ones.
    pub fn new(disabled: &[String], allows: Allows) -> Result<Self, UnknownPlugin> {
        for name in disabled {
            known_plugin(name)?;
        }
        let mut plugins = plugins::all(allows);
        plugins.retain(|plugin| !disabled.iter().any(|name| name == plugin.name()));
        Ok(Self { plugins })
    }

    /// The first step: plugins may change the object. Answers warnings for the client.
    pub fn admit(&self, request: &mut Request<'_>, view: &dyn View) -> Result<Vec<String>, Denied> {
        let mut warnings = Vec::new();
        for plugin in &self.plugins {
            plugin.admit(request, view, &mut warnings)?;
        }
        Ok(warnings)
    }

    /// The second step, on the final and validated object. Answers warnings for the client.
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
        Chain::new(&disabled, Arc::new(|_, _, _| true)).map(|chain| chain.plugins.iter().map(|plugin| plugin.name()).collect())
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
