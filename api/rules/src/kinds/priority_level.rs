//! PriorityLevelConfiguration: how many of its requests run at the same time, and how the others wait.

use serde_json::Value;

use super::flow_schema::validate_conditions;
use super::{Rules, mandatory};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{fill, fill_absent, inner, make, spec, text};

/// The rules of PriorityLevelConfigurations.
pub const RULES: Rules = Rules::new(default, validate_create, validate_update);

const EXEMPT: &str = "exempt";
/// The default shares of a level.
const SHARES: i64 = 30;
const QUEUES_MAX: i64 = 10_000_000;
/// The bits of the hash that selects the queues of a flow.
const HASH_BITS: u32 = 60;

fn default(object: &mut Value) {
    let Some(spec) = spec(object) else { return };
    if text(spec, "type") == "Exempt" {
        if let Some(exempt) = make(spec, "exempt") {
            fill_absent(exempt, "nominalConcurrencyShares", 0);
            fill_absent(exempt, "lendablePercent", 0);
        }
        return;
    }
    let Some(limited) = inner(spec, "limited") else { return };
    fill_absent(limited, "nominalConcurrencyShares", SHARES);
    fill_absent(limited, "lendablePercent", 0);
    if let Some(queuing) = inner(limited, "limitResponse").and_then(|response| inner(response, "queuing")) {
        fill(queuing, "queues", 64);
        fill(queuing, "handSize", 8);
        fill(queuing, "queueLengthLimit", 50);
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let (name, spec) = (object.find("metadata.name").text(), object.get("spec"));
    let kind = spec.get("type");
    if (name == EXEMPT) != (kind.text() == "Exempt") {
        checks.invalid(&kind, "type must be 'Exempt' if and only if name is 'exempt'");
    }
    let (exempt, limited) = (spec.get("exempt"), spec.get("limited"));
    match kind.text() {
        "Exempt" => {
            if limited.exists() {
                checks.forbidden(&limited, "must be nil if the type is not Limited");
            }
            shares(&exempt, checks);
        }
        "Limited" => {
            if exempt.exists() {
                checks.forbidden(&exempt, "must be nil if the type is Limited");
            }
            if limited.exists() {
                self::limited(&limited, checks);
            } else {
                checks.required(&limited, "must not be empty when type is Limited");
            }
        }
        _ => checks.not_supported(&kind, &["Exempt", "Limited"]),
    }
    if name != EXEMPT {
        mandatory::validate("PriorityLevelConfiguration", object, checks);
    }
    validate_conditions(object, checks);
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, _old: &At<'_>, checks: &mut Checks) {
    validate_create(new, checks);
}

fn shares(at: &At<'_>, checks: &mut Checks) {
    let (shares, lendable) = (at.get("nominalConcurrencyShares"), at.get("lendablePercent"));
    if shares.int() < 0 {
        checks.invalid(&shares, "must be a non-negative integer");
    }
    if !(0..=100).contains(&lendable.int()) {
        checks.invalid(&lendable, "must be between 0 and 100, inclusive");
    }
}

fn limited(limited: &At<'_>, checks: &mut Checks) {
    shares(limited, checks);
    let borrowing = limited.get("borrowingLimitPercent");
    if borrowing.int() < 0 {
        checks.invalid(&borrowing, "if specified, must be a non-negative integer");
    }
    let response = limited.get("limitResponse");
    let (kind, queuing) = (response.get("type"), response.get("queuing"));
    match kind.text() {
        "Reject" if queuing.exists() => {
            checks.forbidden(&queuing, "must be nil if limited.limitResponse.type is not Limited");
        }
        "Reject" => {}
        "Queue" if queuing.exists() => self::queuing(&queuing, checks),
        "Queue" => checks.required(&queuing, "must not be empty if limited.limitResponse.type is Limited"),
        _ => checks.not_supported(&kind, &["Queue", "Reject"]),
    }
}

fn queuing(queuing: &At<'_>, checks: &mut Checks) {
    let (queues, hand, len) = (queuing.get("queues"), queuing.get("handSize"), queuing.get("queueLengthLimit"));
    if len.int() <= 0 {
        checks.invalid(&len, "must be positive");
    }
    if queues.int() <= 0 {
        checks.invalid(&queues, "must be positive");
    } else if queues.int() > QUEUES_MAX {
        checks.invalid(&queues, format!("must not be greater than {QUEUES_MAX}"));
    }
    let (queues, size) = (queues.int(), hand.int());
    if size <= 0 {
        checks.invalid(&hand, "must be positive");
    } else if size > queues {
        checks.invalid(&hand, format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, size) > HASH_BITS {
        let words = format!("required entropy bits of deckSize {queues} and handSize {size} should not be greater than {HASH_BITS}");
        checks.invalid(&hand, words);
    }
}

/// Upstream's estimate of how many bits of the hash a hand uses.
fn entropy_bits(queues: i64, hand: i64) -> u32 {
    let needed = f64::from(u32::try_from(queues).unwrap_or(u32::MAX)).log2() * f64::from(u32::try_from(hand).unwrap_or(u32::MAX));
    // Rounds up without a narrowing conversion: the first number that is not smaller.
    (0..=HASH_BITS).find(|bits| f64::from(*bits) >= needed).unwrap_or(u32::MAX)
}
