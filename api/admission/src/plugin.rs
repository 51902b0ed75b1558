//! What a built-in admission plugin is.

use std::sync::Arc;

use api_model::request::{Attributes, UserInfo};
use api_model::view::View;

use crate::denied::Denied;
use crate::request::Request;

/// Whether a user may do something: the authorizer, as admission sees it.
pub type Allows = Arc<dyn Fn(&UserInfo, &Attributes, &dyn View) -> bool + Send + Sync>;

/// One admission plugin. Both steps are pure; what they must know of other objects is in the view.
pub trait Plugin: Send + Sync {
    /// Upstream's name, as in `--disable-admission-plugins`.
    fn name(&self) -> &'static str;

    /// May change the object, refuse it, or add warnings for the client.
    fn admit(&self, _request: &mut Request<'_>, _view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        Ok(())
    }

    /// May refuse the final object, or add warnings for the client.
    fn validate(&self, _request: &Request<'_>, _view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        Ok(())
    }
}
