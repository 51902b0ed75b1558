//! Expressions that select devices: the selectors of DeviceClasses and of the requests of ResourceClaims. The variable is `device`;
//! names, types and messages are upstream's (`dynamic-resource-allocation/cel`).

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use api_model::k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use api_model::quantity;
use api_schema::Structural;
use serde_json::json;
use thiserror::Error;

use crate::types::QUANTITY;
use crate::value::{Key, Text, Value};
use crate::{Budget, CompileError, Env, EvaluateError, Expression, Scope, Type, version};

/// The maximum cost of one selector, by its estimate and when it is evaluated: upstream's `CELSelectorExpressionMaxCost`.
pub const SELECTOR_COST_MAX: u64 = 1_000_000;

const DEVICE: &str = "device";
/// The maximum of characters of a value of an attribute, in fours of bytes: upstream's `DeviceAttributeMaxValueLength` is 64.
const VALUE_LEN_MAX: u64 = 16;
/// The maximum of characters of the name of a driver, in fours of bytes.
const DRIVER_LEN_MAX: u64 = 16;
/// Upstream's `ResourceSliceMaxAttributesAndCapacitiesPerDevice`.
const ATTRIBUTES_MAX: u64 = 32;

/// A selector that cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SelectorError {
    /// The expression does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The result is no boolean.
    #[error("must evaluate to bool or the unknown type, not {0}")]
    ResultType(Type),
}

impl SelectorError {
    /// Whether the same selector may compile later: the machine lacks something now.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Compile(error) if error.is_transient())
    }
}

/// A device whose selector cannot be evaluated.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MatchError {
    /// The evaluation failed because a key is missing.
    #[error("{0}. Consider using CEL optional chaining (?), has() macro, or orValue() for optional fields")]
    NoSuchKey(EvaluateError),
    /// The evaluation failed.
    #[error(transparent)]
    Evaluate(EvaluateError),
    /// The result is no boolean.
    #[error("CEL result of type {0} could not be converted to bool")]
    ResultType(Type),
    /// An attribute has no value that expressions can read.
    #[error("attribute {0}: unsupported attribute value")]
    Attribute(String),
    /// A capacity is no quantity.
    #[error("capacity {0}: {1}")]
    Capacity(String, quantity::QuantityError),
}

/// A compiled selector. Many threads can use it at once.
#[derive(Debug)]
pub struct Selector(Expression);

/// The variable `device` for one device.
pub struct DeviceValue<'d>(Value<'d>);

impl Selector {
    /// Compiles a selector.
    ///
    /// # Errors
    /// The expression does not compile, or its result is no boolean. The messages are upstream's.
    pub fn compile(text: &str) -> Result<Self, SelectorError> {
        let expression = Expression::compile(text, &ENV)?;
        match expression.result() {
            Type::Bool | Type::Dyn => Ok(Self(expression)),
            other => Err(SelectorError::ResultType(other.clone())),
        }
    }

    /// The maximum cost of one evaluation, for any device.
    pub fn estimate(&self) -> u64 {
        self.0.estimate_variable(DEVICE, &SCHEMA)
    }

    /// Whether the selector selects the device. The budget pays for it even if the evaluation fails.
    ///
    /// # Errors
    /// The evaluation failed, or was too expensive.
    pub fn matches(&self, device: &DeviceValue<'_>, budget: &mut Budget) -> Result<bool, MatchError> {
        let scope = Scope::default().with(DEVICE, device.0.clone());
        match self.0.evaluate(&scope, budget) {
            Ok(Value::Bool(is_match)) => Ok(is_match),
            Ok(other) => Err(MatchError::ResultType(other.type_of())),
            Err(error) if error.to_string().starts_with("no such key:") => Err(MatchError::NoSuchKey(error)),
            Err(error) => Err(MatchError::Evaluate(error)),
        }
    }
}

impl MatchError {
    /// Whether the budget of the caller was too small.
    pub fn is_out_of_budget(&self) -> bool {
        matches!(self, Self::Evaluate(EvaluateError::OutOfBudget))
    }
}

impl<'d> DeviceValue<'d> {
    /// The device of a driver. Names without a domain have the driver as their domain.
    ///
    /// # Errors
    /// An attribute or a capacity has no value that expressions can read.
    pub fn new(driver: &'d str, device: &'d Device) -> Result<Self, MatchError> {
        let mut attributes: Domains<'d> = BTreeMap::new();
        for (name, attribute) in device.attributes.iter().flatten() {
            let value = of_attribute(attribute).ok_or_else(|| MatchError::Attribute(name.clone()))?;
            insert(&mut attributes, name, driver, value);
        }
        let mut capacity: Domains<'d> = BTreeMap::new();
        for (name, of) in device.capacity.iter().flatten() {
            let nano = quantity::nano(&of.value.0).map_err(|error| MatchError::Capacity(name.clone(), error))?;
            insert(&mut capacity, name, driver, Value::Quantity(nano));
        }
        let fields = [
            ("driver", Value::String(Text::Borrowed(driver))),
            ("attributes", by_domain(attributes)),
            ("capacity", by_domain(capacity)),
            ("allowMultipleAllocations", Value::Bool(device.allow_multiple_allocations.unwrap_or_default())),
        ];
        let fields = fields.into_iter().map(|(name, value)| (Key::String(name.into()), value)).collect();
        Ok(Self(Value::Map(Arc::new(fields))))
    }
}

type Domains<'d> = BTreeMap<Key, BTreeMap<Key, Value<'d>>>;

fn insert<'d>(domains: &mut Domains<'d>, name: &str, driver: &str, value: Value<'d>) {
    let (domain, id) = name.split_once('/').unwrap_or((driver, name));
    domains.entry(Key::String(domain.into())).or_default().insert(Key::String(id.into()), value);
}

/// An unknown domain has no attributes; to name it is no error.
fn by_domain(domains: Domains<'_>) -> Value<'_> {
    let maps = domains.into_iter().map(|(domain, values)| (domain, Value::Map(Arc::new(values)))).collect();
    Value::MapWithDefault(Arc::new((maps, Value::Map(Arc::default()))))
}

/// The one value of an attribute. Lists are an alpha feature upstream.
fn of_attribute(attribute: &DeviceAttribute) -> Option<Value<'_>> {
    Some(match attribute {
        DeviceAttribute { int: Some(number), .. } => Value::Int(*number),
        DeviceAttribute { bool: Some(flag), .. } => Value::Bool(*flag),
        DeviceAttribute { string: Some(text), .. } => Value::String(Text::Borrowed(text)),
        DeviceAttribute { version: Some(text), .. } => Value::Semver(Arc::new(version::parse(text, false)?)),
        _ => return None,
    })
}

static ENV: LazyLock<Env> = LazyLock::new(|| {
    let fields = [
        ("driver", Type::String),
        ("attributes", Type::map(Type::map(Type::Dyn))),
        ("capacity", Type::map(Type::map(Type::Opaque(QUANTITY)))),
        ("allowMultipleAllocations", Type::Bool),
    ];
    Env::default().with(DEVICE, Type::object("kubernetes.DRADevice", fields))
});

/// The limits of a device, for estimates. A value of an attribute costs at most what a text of the maximum length costs.
static SCHEMA: LazyLock<Structural> = LazyLock::new(|| {
    let map = |of: serde_json::Value| json!({"type": "object", "maxProperties": ATTRIBUTES_MAX, "additionalProperties": of});
    Structural::parse(&json!({"type": "object", "properties": {
        "driver": {"type": "string", "maxLength": DRIVER_LEN_MAX},
        "attributes": map(map(json!({"type": "string", "maxLength": VALUE_LEN_MAX}))),
        "capacity": map(map(json!({"type": "integer"}))),
        "allowMultipleAllocations": {"type": "boolean"},
    }}))
});

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> Device {
        serde_json::from_value(json!({
            "name": "gpu-0",
            "attributes": {
                "model": {"string": "A100"}, "cores": {"int": 80}, "ecc": {"bool": true}, "ext.example.com/driver": {"version": "1.2.3"},
            },
            "capacity": {"memory": {"value": "40Gi"}},
        }))
        .expect("a device")
    }

    fn matches(text: &str) -> Result<bool, String> {
        let device = device();
        let selector = Selector::compile(text).map_err(|error| error.to_string())?;
        let value = DeviceValue::new("gpu.example.com", &device).map_err(|error| error.to_string())?;
        selector.matches(&value, &mut Budget::new(SELECTOR_COST_MAX)).map_err(|error| error.to_string())
    }

    #[test]
    fn selectors_read_the_device() {
        for (text, is_match) in [
            (r#"device.driver == "gpu.example.com""#, true),
            (r#"device.driver == "other.example.com""#, false),
            (r#"device.attributes["gpu.example.com"].model == "A100""#, true),
            (r#"device.attributes["gpu.example.com"].model == 1"#, false),
            (r#"device.attributes["gpu.example.com"].cores > 79 && device.attributes["gpu.example.com"].ecc"#, true),
            (r#"device.attributes["ext.example.com"].driver.isGreaterThan(semver("1.2.2"))"#, true),
            (r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0"#, true),
            (r#"device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("40Gi"))"#, false),
            (r#"cel.bind(gpu, device.attributes["gpu.example.com"], gpu.ecc && gpu.cores == 80)"#, true),
            (r#"has(device.attributes["gpu.example.com"].model)"#, true),
            (r#"has(device.attributes["gpu.example.com"].missing)"#, false),
            (r#"has(device.attributes["unknown.example.com"].model)"#, false),
            (r#"device.attributes["unknown.example.com"].?model.orValue("none") == "none""#, true),
            (r#""unknown.example.com" in device.attributes"#, false),
            (r#""gpu.example.com" in device.attributes && size(device.attributes) == 2"#, true),
            ("device.allowMultipleAllocations", false),
        ] {
            assert_eq!(matches(text), Ok(is_match), "{text}");
        }
    }

    #[test]
    fn errors_are_upstreams() {
        let cases = [
            ("1", "must evaluate to bool or the unknown type, not int"),
            (
                r#"device.attributes["gpu.example.com"].missing"#,
                "no such key: missing. Consider using CEL optional chaining (?), has() macro, or orValue() for optional fields",
            ),
            (r#"device.attributes["gpu.example.com"].model"#, "CEL result of type string could not be converted to bool"),
        ];
        for (text, message) in cases {
            assert_eq!(matches(text), Err(message.to_owned()), "{text}");
        }
        let unknown = matches("device.name == \"x\"").expect_err("an unknown field");
        assert!(unknown.starts_with("compilation failed: ERROR: <input>:1:7: undefined field 'name'"), "{unknown}");
        let lists: Device = serde_json::from_value(json!({"name": "a", "attributes": {"all": {"ints": [1]}}})).expect("a device");
        let error = DeviceValue::new("d", &lists).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("attribute all: unsupported attribute value"));
    }

    #[test]
    fn costs_are_estimated_by_the_limits_of_a_device() {
        let estimate = |text: &str| Selector::compile(text).expect(text).estimate();
        assert!(estimate(r#"device.attributes["gpu.example.com"].model == "A100""#) < 100);
        assert!(estimate("device.attributes.all(d, device.attributes[d].all(a, device.attributes[d][a] == 'x'))") < SELECTOR_COST_MAX);
        let ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
        let hostile = ["a", "b", "c", "d", "e", "f"]
            .iter()
            .fold("int('1'.find('[0-9]*')) < 100".to_owned(), |inner, name| format!("{ten}.all({name}, {inner})"));
        assert!(estimate(&hostile) > SELECTOR_COST_MAX);
        assert_eq!(matches(&hostile), Err("running out of cost budget".to_owned()));
    }
}
