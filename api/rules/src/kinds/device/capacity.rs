//! Capacities of a device, and the amounts that claims may request where they share the device.

use crate::at::At;
use crate::checks::Checks;
use crate::quantity;

/// Most values in `validValues`.
const VALUES_MAX: usize = 10;

/// Checks a capacity; `shared` says whether several claims may share the device.
pub(super) fn validate(capacity: &At<'_>, shared: bool, checks: &mut Checks) {
    let policy = capacity.get("requestPolicy");
    if !policy.exists() {
        return;
    }
    if !shared {
        return checks.forbidden(&policy, "allowMultipleAllocations must be true");
    }
    let (values, range) = (policy.get("validValues"), policy.get("validRange"));
    match (values.len() > 0, range.exists()) {
        (true, true) => {
            let detail = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
            checks.forbidden(&policy, detail);
        }
        (true, false) if !policy.get("default").exists() => {
            checks.required(&policy.get("default"), "required when validValues is defined");
        }
        (true, false) => self::values(&values, &policy.get("default"), &capacity.get("value"), checks),
        (false, true) if !policy.get("default").exists() => {
            checks.required(&policy.get("default"), "required when validRange is defined");
        }
        (false, true) => self::range(&range, &policy.get("default"), &capacity.get("value"), checks),
        (false, false) => {}
    }
}

fn nano(at: &At<'_>) -> i128 {
    quantity::parse(at.text()).map(quantity::Quantity::nano).unwrap_or_default()
}

fn values(values: &At<'_>, default: &At<'_>, most: &At<'_>, checks: &mut Checks) {
    let mut before: Option<i128> = None;
    for value in values.items() {
        if before.is_some_and(|before| before > nano(&value)) {
            checks.invalid(&value, "values must be sorted in ascending order");
        }
        before = Some(nano(&value));
    }
    if values.len() > VALUES_MAX {
        checks.too_many(values, VALUES_MAX);
    } else {
        let mut seen = std::collections::HashSet::new();
        for value in values.items() {
            if nano(&value) > nano(most) {
                checks.invalid(&value, format!("option is larger than capacity value: {}", most.text()));
            }
            if !seen.insert(nano(&value)) {
                checks.duplicate(&value);
            }
        }
    }
    if !values.items().any(|value| nano(&value) == nano(default)) {
        checks.invalid_value(&values.path, default.text(), "default value is not valid according to the requestPolicy");
    }
}

fn range(range: &At<'_>, default: &At<'_>, most: &At<'_>, checks: &mut Checks) {
    let (min, max, step) = (range.get("min"), range.get("max"), range.get("step"));
    if !min.exists() {
        return checks.required(&min, "required when validRange is defined");
    }
    let wanted = At::new(default.value(), range.path.child("default"));
    if nano(&min) > nano(most) {
        checks.invalid(&min, format!("min is larger than capacity value: {}", most.text()));
    }
    if nano(default) < nano(&min) {
        checks.invalid(&wanted, format!("default is less than min: {}", min.text()));
    }
    if max.exists() {
        if nano(&min) > nano(&max) {
            checks.invalid_value(&max.path, min.text(), format!("min is larger than max: {}", max.text()));
        }
        if nano(&max) > nano(most) {
            checks.invalid(&max, format!("max is larger than capacity value: {}", most.text()));
        }
        if nano(default) > nano(&max) {
            checks.invalid(&wanted, format!("default is more than max: {}", max.text()));
        }
    }
    if step.exists() {
        self::step(&step, &min, [&wanted, &max], most, checks);
    }
}

/// Every amount must be the minimum plus a whole number of steps.
fn step(step: &At<'_>, min: &At<'_>, others: [&At<'_>; 2], most: &At<'_>, checks: &mut Checks) {
    if nano(step) <= 0 {
        return checks.invalid(step, "must be greater than zero");
    }
    let first = nano(min).saturating_add(nano(step));
    if first > nano(most) {
        let first = match (quantity::parse(min.text()), quantity::parse(step.text())) {
            (Ok(min), Ok(step)) => min.plus(step).canonical(),
            _ => String::new(),
        };
        checks.invalid(step, format!("one step {first} is larger than capacity value: {}", most.text()));
    }
    for other in others.into_iter().filter(|other| other.exists()) {
        if nano(other).saturating_sub(nano(min)) % nano(step) != 0 {
            let detail = format!("value is not a multiple of a given step ({}) from ({})", step.text(), min.text());
            checks.invalid_value(&step.path, other.text(), detail);
        }
    }
}
