//! Type-checks a policy's expressions with the types of the kinds that the policy matches, in upstream's words: each type error
//! becomes a warning. It checks validations and their message expressions.

use api_cel::{Env, Expression, Type, admission};
use k8s_openapi::api::admissionregistration::v1::{ExpressionWarning, ValidatingAdmissionPolicySpec};

use super::kinds::Gvk;

/// The highest size of all warnings of a policy, so that its status can be stored whatever its expressions are.
const WARNINGS_BYTES_MAX: usize = 256 * 1024;

/// The types that expressions are checked with.
pub struct Types {
    /// The kinds of objects.
    pub objects: Vec<(Gvk, Type)>,
    /// The type of parameters; `Dyn` if it is not known.
    pub params: Type,
}

/// The warnings for the expressions of a policy.
pub fn warnings(spec: &ValidatingAdmissionPolicySpec, types: &Types) -> Vec<ExpressionWarning> {
    let envs: Vec<(&Gvk, Env)> = types.objects.iter().map(|(kind, of)| (kind, env(spec, of, &types.params))).collect();
    let mut found = Vec::new();
    let mut left = WARNINGS_BYTES_MAX;
    for (index, validation) in spec.validations.iter().flatten().enumerate() {
        let expressions = [("expression", Some(&validation.expression)), ("messageExpression", validation.message_expression.as_ref())];
        for (field, text) in expressions {
            let kinds = envs.iter().map(|(kind, env)| (*kind, env));
            let warning = text.filter(|text| !text.is_empty()).map(|text| complaints(kinds, text, left)).unwrap_or_default();
            left -= warning.len();
            if !warning.is_empty() {
                found.push(ExpressionWarning { field_ref: format!("spec.validations[{index}].{field}"), warning });
            }
        }
    }
    found
}

/// The type errors of an expression for each kind, in at most that many bytes. When the text is full, the remaining kinds are
/// not checked: the errors of a long expression may be as long for each kind.
fn complaints<'k>(mut kinds: impl Iterator<Item = (&'k Gvk, &'k Env)>, text: &str, bytes_max: usize) -> String {
    let mut issues = String::new();
    while issues.len() < bytes_max
        && let Some((kind, env)) = kinds.next()
    {
        if let Err(error) = Expression::compile(text, env) {
            let gap = if issues.is_empty() { "" } else { "\n" };
            issues.push_str(&format!("{gap}{kind}: {}\n", error.issues()));
        }
    }
    issues.truncate(issues.floor_char_boundary(bytes_max));
    issues
}

/// The variables of an expression for objects of a type. A policy variable with an error of its own has the type `Dyn`.
fn env(spec: &ValidatingAdmissionPolicySpec, object: &Type, params: &Type) -> Env {
    let mut env = admission::env(spec.param_kind.is_some(), true).with("object", object.clone()).with("oldObject", object.clone());
    if spec.param_kind.is_some() {
        env = env.with("params", params.clone());
    }
    let mut variables: Vec<(&str, Type)> = Vec::new();
    for variable in spec.variables.iter().flatten() {
        let compiled = Expression::compile(&variable.expression, &env.clone().with_composed(variables.clone()));
        variables.push((&variable.name, compiled.map_or(Type::Dyn, |compiled| compiled.result().clone())));
    }
    env.with_composed(variables)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn types(params: Type) -> Types {
        let gvk = |kind: &str| Gvk { group: "apps".to_owned(), version: "v1".to_owned(), kind: kind.to_owned() };
        let of =
            |kind: &str, field: &'static str| Type::object(kind, [("spec", Type::object(&format!("{kind}.spec"), [(field, Type::Int)]))]);
        Types {
            objects: vec![(gvk("Deployment"), of("Deployment", "replicas")), (gvk("DaemonSet"), of("DaemonSet", "minReadySeconds"))],
            params,
        }
    }

    fn warnings_of(spec: Value, params: Type) -> Vec<(String, String)> {
        let spec = serde_json::from_value(spec).expect("a spec");
        warnings(&spec, &types(params)).into_iter().map(|warning| (warning.field_ref, warning.warning)).collect()
    }

    #[test]
    fn each_expression_is_checked_against_each_kind() {
        let found = warnings_of(
            json!({"validations": [
                {"expression": "object.spec.replicas > 1", "messageExpression": "'not ' + object.kind"},
                {"expression": "has(object.spec) && authorizer.requestResource.check('x').allowed()"},
            ]}),
            Type::Dyn,
        );
        let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(fields, ["spec.validations[0].expression", "spec.validations[0].messageExpression"]);
        let wanted =
            "apps/v1, Kind=DaemonSet: ERROR: <input>:1:12: undefined field 'replicas'\n | object.spec.replicas > 1\n | ...........^\n";
        assert_eq!(found[0].1, wanted);
        let both: Vec<&str> = found[1].1.lines().filter(|line| line.contains("Kind=")).collect();
        assert_eq!(
            both,
            [
                "apps/v1, Kind=Deployment: ERROR: <input>:1:16: undefined field 'kind'",
                "apps/v1, Kind=DaemonSet: ERROR: <input>:1:16: undefined field 'kind'"
            ]
        );
    }

    #[test]
    fn variables_and_parameters_have_types() {
        let params = Type::object("Limit", [("max", Type::Int)]);
        let spec = |text: &str| {
            json!({"paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"}, "validations": [{"expression": text}], "variables": [
                {"name": "seconds", "expression": "object.spec.minReadySeconds"},
                {"name": "twice", "expression": "variables.seconds * 2"},
            ]})
        };
        assert_eq!(warnings_of(spec("variables.twice < params.max"), params.clone()), []);
        let found = warnings_of(spec("variables.twice < params.min || variables.seconds == 'a'"), params);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].1.matches("undefined field 'min'").count(), 2);
        // The variable has a type for the kind with the field, and is `Dyn` for the other one.
        assert_eq!(found[0].1.matches("found no matching overload for '_==_' applied to '(int, string)'").count(), 1);
        assert_eq!(warnings_of(spec("params.anything == 1"), Type::Dyn), []);
    }

    #[test]
    fn warnings_have_room_in_a_status() {
        let long = format!("object.{} == 1", "x".repeat(90_000));
        let found = warnings_of(json!({"validations": [{"expression": long}, {"expression": long}, {"expression": long}]}), Type::Dyn);
        let bytes: usize = found.iter().map(|(_, warning)| warning.len()).sum();
        assert_eq!(bytes, WARNINGS_BYTES_MAX);
    }

    #[test]
    fn no_kind_is_looked_at_once_there_is_no_room() {
        let types = types(Type::Dyn);
        let spec = ValidatingAdmissionPolicySpec::default();
        let envs: Vec<(&Gvk, Env)> = types.objects.iter().map(|(kind, of)| (kind, env(&spec, of, &types.params))).collect();
        let looked_at = |text: &str, bytes_max: usize| {
            let mut count = 0;
            let issues = complaints(envs.iter().map(|(kind, env)| (*kind, env)).inspect(|_| count += 1), text, bytes_max);
            assert!(issues.len() <= bytes_max);
            count
        };
        assert_eq!(looked_at("object.kind == 'a'", 10_000), 2);
        assert_eq!(looked_at("object.kind == 'a'", 50), 1);
        assert_eq!(looked_at("object.kind == 'a'", 0), 0);
    }
}
