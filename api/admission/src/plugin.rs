//! The trait of built-in admission plugins.

use std::sync::Arc;

use api_model::request::{Attributes, UserInfo};
use api_model::view::View;

use crate::denied::Denied;
use crate::request::Request;

/// The authorizer, for admission: whether a user may do something.
pub type Allows = Arc<dyn Fn(&UserInfo, &Attributes, &dyn View) -> bool + Send + Sync>;

/// An admission plugin. Both steps are pure; they read other objects from the view.
pub trait Plugin: Send + Sync {
    /// Upstream's name, as in `--disable-admission-plugins`.
    fn name(&self) -> &'static str;

    /// The mutating step: may change the object, reject it, or add warnings for the client.
    fn admit(&self, _request: &mut Request<'_>, _view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        Ok(())
    }

    /// The validating step: may reject the final object, or add warnings for the client.
    fn validate(&self, _request: &Request<'_>, _view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        Ok(())
    }
}
