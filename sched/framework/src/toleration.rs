//! Which taints a Pod tolerates. The scheduler and the DaemonSet controller judge alike.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether any toleration covers the taint.
pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| covers(toleration, taint))
}

fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let (key, effect) = (toleration.key.as_deref().unwrap_or_default(), toleration.effect.as_deref().unwrap_or_default());
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default(),
        _ => false,
    }
}
