//! Taints of devices: the devices that a DeviceTaintRule selects, and the taints that a request tolerates.

use k8s_openapi::api::resource::v1::{DeviceTaint, DeviceTaintSelector, DeviceToleration};

/// Whether the toleration tolerates the taint. A toleration without an effect tolerates all effects, one without a key all keys.
pub fn tolerates_device_taint(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let is_or_empty = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == is);
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    is_or_empty(&toleration.effect, &taint.effect)
        && is_or_empty(&toleration.key, &taint.key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => text(&toleration.value) == text(&taint.value),
            "Exists" => true,
            _ => false,
        }
}

/// Whether the selector of a DeviceTaintRule selects the device of that name in the pool. Without a name: whether it may select a device
/// of the pool.
pub fn selects_device(selector: &DeviceTaintSelector, driver: &str, pool: &str, device: Option<&str>) -> bool {
    let is_or_absent = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
    is_or_absent(&selector.driver, driver)
        && is_or_absent(&selector.pool, pool)
        && device.is_none_or(|device| is_or_absent(&selector.device, device))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{self, json};

    use super::*;

    #[test]
    fn a_selector_selects_by_each_field_that_it_has() {
        let cases = [
            (json!({}), Some("gpu-0"), true),
            (json!({"driver": "d"}), Some("gpu-0"), true),
            (json!({"driver": "e"}), Some("gpu-0"), false),
            (json!({"pool": "p", "device": "gpu-0"}), Some("gpu-0"), true),
            (json!({"pool": "q", "device": "gpu-0"}), Some("gpu-0"), false),
            (json!({"device": "gpu-1"}), Some("gpu-0"), false),
            (json!({"device": "gpu-1"}), None, true),
            (json!({"pool": "q", "device": "gpu-1"}), None, false),
        ];
        for (selector, device, wanted) in cases {
            let parsed: DeviceTaintSelector = serde_json::from_value(selector.clone()).expect("a selector");
            assert_eq!(selects_device(&parsed, "d", "p", device), wanted, "{selector} {device:?}");
        }
    }
}
