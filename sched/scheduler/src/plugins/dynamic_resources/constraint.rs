//! Constraints among the devices of a claim: `matchAttribute` and `distinctAttribute`.

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceConstraint};

/// A constraint with the values of the devices that it applies to, the latest one last.
#[derive(Debug)]
pub(super) struct Constraint<'a> {
    kind: ConstraintKind,
    attribute: &'a str,
    /// The names of the requests that the constraint applies to; all requests when there are none.
    requests: &'a [String],
    values: Vec<AttributeValue<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConstraintKind {
    /// All devices have the same value.
    Match,
    /// No two devices have the same value.
    Distinct,
}

/// The value of an attribute. Values of different types are never equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttributeValue<'a> {
    Text(&'a str),
    Int(i64),
    Bool(bool),
    /// Versions have one way to be written.
    Version(&'a str),
}

impl<'a> Constraint<'a> {
    /// The constraint of a claim; `None` for an unknown kind.
    pub fn new(constraint: &'a DeviceConstraint) -> Option<Self> {
        let (kind, attribute) = match (&constraint.match_attribute, &constraint.distinct_attribute) {
            (Some(attribute), _) => (ConstraintKind::Match, attribute),
            (None, Some(attribute)) => (ConstraintKind::Distinct, attribute),
            (None, None) => return None,
        };
        Some(Self { kind, attribute, requests: constraint.requests.as_deref().unwrap_or_default(), values: Vec::new() })
    }

    /// Adds a device for a request, whose subrequest may have a name of its own. Returns whether the constraint allows the device;
    /// if not, nothing is added.
    pub fn add(&mut self, names: RequestNames<'_>, driver: &str, device: &'a Device) -> bool {
        if !self.applies_to(names) {
            return true;
        }
        let Some(value) = lookup(device, driver, self.attribute).and_then(AttributeValue::new) else { return false };
        let is_allowed = match self.kind {
            ConstraintKind::Match => self.values.first().is_none_or(|first| *first == value),
            ConstraintKind::Distinct => !self.values.contains(&value),
        };
        if is_allowed {
            self.values.push(value);
        }
        is_allowed
    }

    /// Removes the device that was added last for the request.
    pub fn remove(&mut self, names: RequestNames<'_>) {
        if self.applies_to(names) {
            self.values.pop();
        }
    }

    fn applies_to(&self, RequestNames { request, full }: RequestNames<'_>) -> bool {
        self.requests.is_empty() || self.requests.iter().any(|name| name == request || name == full)
    }
}

/// The name of a request, and the name with that of its subrequest (`request/subrequest`), if there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestNames<'n> {
    pub request: &'n str,
    pub full: &'n str,
}

impl<'a> AttributeValue<'a> {
    fn new(attribute: &'a DeviceAttribute) -> Option<Self> {
        Some(match attribute {
            DeviceAttribute { string: Some(text), .. } => Self::Text(text),
            DeviceAttribute { int: Some(number), .. } => Self::Int(*number),
            DeviceAttribute { bool: Some(flag), .. } => Self::Bool(*flag),
            DeviceAttribute { version: Some(text), .. } => Self::Version(text),
            _ => return None,
        })
    }
}

/// The attribute of that full name. The device may leave the domain out when it is the driver's.
fn lookup<'a>(device: &'a Device, driver: &str, name: &str) -> Option<&'a DeviceAttribute> {
    let attributes = device.attributes.as_ref()?;
    attributes.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        attributes.get(id).filter(|_| domain == driver)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn device(attributes: Value) -> Device {
        serde_json::from_value(json!({"name": "a", "attributes": attributes})).expect("a device")
    }

    fn added(constraint: Value, devices: &[(&str, Value)]) -> Vec<bool> {
        let constraint: DeviceConstraint = serde_json::from_value(constraint).expect("a constraint");
        let devices: Vec<_> = devices.iter().map(|(request, attributes)| (*request, device(attributes.clone()))).collect();
        let mut constraint = Constraint::new(&constraint).expect("a kind");
        let names = |request: &'static str| RequestNames { request, full: "r/sub" };
        devices.iter().map(|(request, device)| constraint.add(names(if *request == "r" { "r" } else { "other" }), "d", device)).collect()
    }

    #[test]
    fn all_devices_match() {
        let of = |value: Value| ("r", json!({"model": value}));
        let matching = json!({"matchAttribute": "d/model"});
        assert_eq!(added(matching.clone(), &[of(json!({"string": "a"})), of(json!({"string": "a"}))]), [true, true]);
        assert_eq!(added(matching.clone(), &[of(json!({"string": "1"})), of(json!({"int": 1}))]), [true, false]);
        assert_eq!(added(matching.clone(), &[of(json!({"version": "1.0.0"})), of(json!({"version": "1.0.0"}))]), [true, true]);
        assert_eq!(
            added(matching, &[("r", json!({})), ("r", json!({"d/model": {"bool": true}})), of(json!({"bool": false}))]),
            [false, true, false]
        );
        assert_eq!(added(json!({"matchAttribute": "other/model"}), &[of(json!({"int": 1}))]), [false], "another domain");
        let of_request = json!({"matchAttribute": "d/model", "requests": ["r"]});
        assert_eq!(added(of_request, &[("other", json!({})), of(json!({"int": 1}))]), [true, true]);
        let of_sub = json!({"matchAttribute": "d/model", "requests": ["r/sub"]});
        assert_eq!(added(of_sub, &[("r", json!({}))]), [false]);
    }

    #[test]
    fn distinct_devices_differ() {
        let of = |value: i64| ("r", json!({"slot": {"int": value}}));
        let distinct = json!({"distinctAttribute": "d/slot"});
        assert_eq!(added(distinct.clone(), &[of(1), of(2), of(1), of(3)]), [true, true, false, true]);
        assert_eq!(added(distinct, &[("r", json!({}))]), [false]);
    }

    #[test]
    fn what_is_removed_does_not_count() {
        let constraint = json!({"matchAttribute": "d/model"});
        let constraint: DeviceConstraint = serde_json::from_value(constraint).expect("a constraint");
        let (one, two) = (device(json!({"model": {"int": 1}})), device(json!({"model": {"int": 2}})));
        let mut constraint = Constraint::new(&constraint).expect("a kind");
        let names = RequestNames { request: "r", full: "r" };
        assert!(constraint.add(names, "d", &one) && !constraint.add(names, "d", &two));
        constraint.remove(names);
        assert!(constraint.add(names, "d", &two));
        assert!(Constraint::new(&DeviceConstraint::default()).is_none());
    }
}
