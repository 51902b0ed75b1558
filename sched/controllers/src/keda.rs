//! Scaling by events, in the manner of KEDA: [`scaledobject`] scales workloads, down to zero and back, [`scaledjob`] creates Jobs.
//!
//! Both read [`triggers`], which say how much work there is. The kinds are custom resources of `keda.sh/v1alpha1`
//! ([`kinds`], [`spec`]). Requests to addresses that users write go through [`http`] alone.

mod address;
mod auth;
mod blocking;
mod demand;
mod http;
mod kinds;
mod loops;
mod params;
pub mod scaledjob;
pub mod scaledobject;
mod spec;
mod status;
mod triggers;

use std::time::Duration;

/// The label of everything that belongs to a ScaledObject, upstream's `ScaledObjectOwnerAnnotation`.
const SCALED_OBJECT_NAME: &str = "scaledobject.keda.sh/name";
/// The label of everything that belongs to a ScaledJob.
const SCALED_JOB_NAME: &str = "scaledjob.keda.sh/name";
const FINALIZER: &str = "finalizer.keda.sh";
const PAUSED: &str = "autoscaling.keda.sh/paused";
/// What `app.kubernetes.io/managed-by` says, as upstream.
const MANAGER: &str = "keda-operator";
/// What `app.kubernetes.io/version` says.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// An object that is not correct is looked at again at least this often: what it lacks may come.
const CHECK_AGAIN: Duration = Duration::from_secs(30);
