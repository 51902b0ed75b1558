//! Lists of quantities: sums, comparisons, and the text of a sum as upstream writes quantities.

use std::collections::BTreeMap;

use api_model::quantity::{self, BINARY_SUFFIXES, DECIMAL_SUFFIXES, QuantityError};
use serde_json::Value;

/// Thousandths by resource name.
pub type Amounts = BTreeMap<String, i128>;

/// Thousandths of one quantity, written as text or as a number.
pub fn milli(value: &Value) -> Result<i128, QuantityError> {
    match value {
        Value::String(text) => quantity::milli(text),
        Value::Number(number) => quantity::milli(&number.to_string()),
        _ => Err(QuantityError),
    }
}

/// Parses a list of quantities. A quantity that does not parse is left out: the server rejects such quantities when
/// their object is written.
pub fn list(value: Option<&Value>) -> Amounts {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(name, value)| milli(value).ok().map(|amount| (name.clone(), amount))).collect()
}

/// Adds to a sum. The addition saturates; no real sum comes near the largest number.
pub fn add(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let have = sum.entry(name.clone()).or_default();
        *have = have.saturating_add(*amount);
    }
}

/// Raises each amount to the larger one of both lists.
pub fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let have = to.entry(name.clone()).or_default();
        *have = (*have).max(*amount);
    }
}

/// The text of an amount. The suffix is a power of 1024 if the suffix of `like` is one. Without `like`, the suffix is a
/// power of 1024 if the resource counts bytes. Otherwise, it is a power of 1000.
pub fn text(name: &str, milli: i128, like: Option<&str>) -> String {
    let binary = match like {
        Some(like) => like.ends_with('i'),
        None => name.contains("memory") || name.contains("storage") || name.contains("hugepages"),
    };
    if milli % 1000 != 0 {
        return format!("{milli}m");
    }
    let whole = milli / 1000;
    if whole == 0 {
        return "0".to_owned();
    }
    let found = if binary {
        BINARY_SUFFIXES.iter().rev().map(|(suffix, power)| (*suffix, 1_i128 << power)).find(|(_, unit)| whole % unit == 0)
    } else {
        let larger = DECIMAL_SUFFIXES.iter().rev().filter(|(_, power)| *power > 0);
        larger.map(|(suffix, power)| (*suffix, 10_i128.pow(power.unsigned_abs()))).find(|(_, unit)| whole % unit == 0)
    };
    found.map_or_else(|| whole.to_string(), |(suffix, unit)| format!("{}{suffix}", whole / unit))
}

/// The text of a quantity as upstream writes it after parsing.
pub fn canonical(name: &str, value: &Value) -> String {
    let like = value.as_str();
    milli(value).map_or_else(|_| like.unwrap_or_default().to_owned(), |amount| text(name, amount, like))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sums_do_not_wrap() {
        let huge = list(Some(&json!({ "cpu": "1e35" })));
        let mut sum = Amounts::new();
        for _ in 0..100 {
            add(&mut sum, &huge);
        }
        assert_eq!(sum.get("cpu"), Some(&(i128::from(i64::MAX) * 1000 * 100)));
        let most = Amounts::from([("cpu".to_owned(), i128::MAX)]);
        add(&mut sum, &most);
        assert_eq!(sum, most);
    }

    #[test]
    fn quantities_are_written_as_upstream_writes_them() {
        for (value, wanted) in [
            (json!("1000m"), "1"),
            (json!("1500m"), "1500m"),
            (json!("1024Mi"), "1Gi"),
            (json!("1.5Gi"), "1536Mi"),
            (json!("1000"), "1k"),
            (json!(2), "2"),
            (json!("0"), "0"),
            (json!("1e3"), "1k"),
            (json!("128974848"), "128974848"),
        ] {
            assert_eq!(canonical("x", &value), wanted, "{value}");
        }
        assert_eq!(text("requests.memory", 2_147_483_648_000, None), "2Gi");
        assert_eq!(text("requests.cpu", 1_500, None), "1500m");
    }
}
