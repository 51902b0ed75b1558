//! Floats without a fraction, which Go's encoder writes as integers.

use serde_json::Value;

/// Converts the floats without a fraction in a value to integers: upstream's encoder writes `1.0` and `1e3` as `1` and
/// `1000`, and reads these as integers. Numbers beyond 64 bits do not change.
pub fn settle_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = number.as_f64().and_then(whole) {
                *number = whole.into();
            }
        }
        Value::Array(list) => list.iter_mut().for_each(settle_numbers),
        Value::Object(map) => map.values_mut().for_each(settle_numbers),
        _ => {}
    }
}

/// The integer of a number, if 64 bits can represent it.
pub fn whole(number: f64) -> Option<i64> {
    // Written without an exponent and a fraction.
    if number.fract() == 0.0 { format!("{number:.0}").parse().ok() } else { None }
}

/// A copy after [`settle_numbers`].
pub fn settled(value: &Value) -> Value {
    let mut value = value.clone();
    settle_numbers(&mut value);
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_numbers_lose_their_fraction() {
        let value =
            json!({"a": [1.0, -0.0, 1e3, -2.0, 1.5, 7], "b": {"c": 9e18, "d": 1e19, "e": -9_223_372_036_854_775_808.0, "f": "1.0"}});
        let wanted = r#"{"a":[1,0,1000,-2,1.5,7],"b":{"c":9000000000000000000,"d":1e+19,"e":-9223372036854775808,"f":"1.0"}}"#;
        assert_eq!(settled(&value).to_string(), wanted);
    }
}
