//! Authorization checks, built step by step.

use super::CallResult;
use crate::authorizer::{Check, Question, Stage};
use crate::error::EvaluateError;
use crate::estimate::CHECK_COST;
use crate::meter::Meter;
use crate::value::Value;

/// Calls a function of an authorizer.
pub(super) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter) -> CallResult<'v> {
    let [Value::Authorizer(question), rest @ ..] = args else { return Ok(None) };
    let texts = rest.iter().map(Value::as_str).collect::<Option<Vec<_>>>().ok_or_else(EvaluateError::no_overload)?;
    if function != "check" {
        meter.pay(1)?;
    }
    if let Stage::Decided(decision) = &question.stage {
        return Ok(Some(match (function, texts.as_slice()) {
            ("allowed", []) => Value::Bool(decision.allowed),
            ("reason", []) => Value::from(decision.reason.as_str()),
            ("errored", []) => Value::Bool(!decision.error.is_empty()),
            ("error", []) => Value::from(decision.error.as_str()),
            _ => return Ok(None),
        }));
    }
    let mut next = Question::clone(question);
    match (&question.stage, function, texts.as_slice()) {
        (Stage::Authorizer, "path", [path]) => {
            next.check.path = Some((*path).to_owned());
            next.stage = Stage::Path;
        }
        (Stage::Authorizer, "group", [group]) => {
            next.check.group = (*group).to_owned();
            next.stage = Stage::Group;
        }
        (Stage::Authorizer, "serviceAccount", [namespace, name]) => {
            next.check = Check { service_account: Some(((*namespace).to_owned(), (*name).to_owned())), ..Check::default() };
        }
        (Stage::Group, "resource", [resource]) => {
            next.check.resource = (*resource).to_owned();
            next.stage = Stage::Resource;
        }
        (Stage::Resource, "check", [verb]) | (Stage::Path, "check", [verb]) => {
            meter.pay(CHECK_COST)?;
            next.check.verb = (*verb).to_owned();
            next.stage = Stage::Decided(next.authorizer.authorize(&next.check));
        }
        (Stage::Resource, field, [value]) => *part(&mut next.check, field).ok_or_else(EvaluateError::no_overload)? = (*value).to_owned(),
        _ => return Ok(None),
    }
    Ok(Some(Value::Authorizer(Box::new(next))))
}

fn part<'c>(check: &'c mut Check, field: &str) -> Option<&'c mut String> {
    Some(match field {
        "subresource" => &mut check.subresource,
        "namespace" => &mut check.namespace,
        "name" => &mut check.name,
        "fieldSelector" => &mut check.field_selector,
        "labelSelector" => &mut check.label_selector,
        _ => return None,
    })
}
