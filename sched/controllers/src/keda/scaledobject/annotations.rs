//! The annotations by which users pause the scaling of a ScaledObject.

use api_model::go::parse_bool;
use api_model::message::Message;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::keda::PAUSED;
use crate::meta;

/// The label of ScaledObjects that must not go to the autoscaler, by their names with commas between them.
pub const EXCLUDED_LABELS: &str = "scaledobject.keda.sh/hpa-excluded-labels";
/// Whether an existing autoscaler becomes the ScaledObject's.
pub const TRANSFER: &str = "scaledobject.keda.sh/transfer-hpa-ownership";
/// On an autoscaler: `false` excludes it from the check for rivals.
pub const OWNERSHIP: &str = "validations.keda.sh/hpa-ownership";
const PAUSED_REPLICAS: &str = "autoscaling.keda.sh/paused-replicas";
const PAUSED_SCALE_IN: &str = "autoscaling.keda.sh/paused-scale-in";
const PAUSED_SCALE_OUT: &str = "autoscaling.keda.sh/paused-scale-out";
const FORCE_ACTIVATION: &str = "autoscaling.keda.sh/force-activation";

/// What the annotations say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// Nothing scales the target.
    pub all: bool,
    /// The target gets no fewer replicas.
    pub scale_in: bool,
    /// The target gets no more replicas.
    pub scale_out: bool,
    /// The target counts as active.
    pub forces_activation: bool,
}

impl Pauses {
    /// Reads the annotations. As upstream, a value that is no truth value counts as true.
    pub fn of(metadata: &ObjectMeta) -> Self {
        let flag = |name: &str| meta::annotation(metadata, name).is_some_and(|value| parse_bool(value).unwrap_or(true));
        Self {
            all: meta::annotation(metadata, PAUSED_REPLICAS).is_some() || flag(PAUSED),
            scale_in: flag(PAUSED_SCALE_IN),
            scale_out: flag(PAUSED_SCALE_OUT),
            forces_activation: flag(FORCE_ACTIVATION),
        }
    }
}

/// The replicas that a paused target gets; none: it stays as it is.
pub fn paused_replicas(metadata: &ObjectMeta) -> Result<Option<i32>, Message> {
    let Some(text) = meta::annotation(metadata, PAUSED_REPLICAS) else { return Ok(None) };
    let problem = || format!("failed to parse paused replica count: strconv.ParseInt: parsing {text:?}: invalid syntax");
    text.parse().map(Some).map_err(|_| problem().into())
}

/// Whether an annotation has the value `true`.
pub fn is_true(metadata: &ObjectMeta, name: &str) -> bool {
    meta::annotation(metadata, name) == Some("true")
}
