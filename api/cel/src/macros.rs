//! The macros of Kubernetes besides those of CEL: comprehensions with two variables and `cel.bind`.

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue, MapExpr};
use cel::parser::{Macro, MacroExprHelper};
use cel::{IdedExpr, ParseError};

const RESULT: &str = "@result";
/// Adds an entry, or the entries of a map, to the map of an accumulator.
pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";

type Expanded = Result<Option<IdedExpr>, ParseError>;

/// All macros.
pub(crate) fn all() -> Vec<Macro> {
    let mut macros = vec![
        Macro::receiver("bind", 3, bind),
        Macro::receiver("all", 3, |helper, target, args| quantified(helper, target, args, Quantifier::All)),
        Macro::receiver("exists", 3, |helper, target, args| quantified(helper, target, args, Quantifier::Exists)),
        Macro::receiver("existsOne", 3, |helper, target, args| quantified(helper, target, args, Quantifier::ExistsOne)),
        Macro::receiver("exists_one", 3, |helper, target, args| quantified(helper, target, args, Quantifier::ExistsOne)),
    ];
    for count in [3, 4] {
        macros.push(Macro::receiver("transformList", count, |helper, target, args| transformed(helper, target, args, Shape::List)));
        macros.push(Macro::receiver("transformMap", count, |helper, target, args| transformed(helper, target, args, Shape::Map)));
        macros.push(Macro::receiver("transformMapEntry", count, |helper, target, args| transformed(helper, target, args, Shape::Entries)));
    }
    macros
}

#[derive(Clone, Copy)]
enum Quantifier {
    All,
    Exists,
    ExistsOne,
}

#[derive(Clone, Copy)]
enum Shape {
    List,
    Map,
    Entries,
}

fn ident(helper: &mut MacroExprHelper<'_>, name: &str) -> IdedExpr {
    helper.next_expr(Expr::Ident(name.to_owned()))
}

fn truth(helper: &mut MacroExprHelper<'_>, flag: bool) -> IdedExpr {
    helper.next_expr(Expr::Literal(LiteralValue::Boolean(flag.into())))
}

fn number(helper: &mut MacroExprHelper<'_>, number: i64) -> IdedExpr {
    helper.next_expr(Expr::Literal(LiteralValue::Int(number.into())))
}

fn call(helper: &mut MacroExprHelper<'_>, function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    helper.next_expr(Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args }))
}

fn name_of(helper: &MacroExprHelper<'_>, expression: &IdedExpr) -> Result<String, ParseError> {
    match &expression.expr {
        Expr::Ident(name) => Ok(name.clone()),
        _ => Err(helper.new_error(expression.id, "argument must be a simple name")),
    }
}

/// `cel.bind(name, value, expression)`: a fold over an empty list whose accumulator has the name.
fn bind(helper: &mut MacroExprHelper<'_>, target: &mut Option<IdedExpr>, args: &mut Vec<IdedExpr>) -> Expanded {
    if !target.as_ref().is_some_and(|target| matches!(&target.expr, Expr::Ident(name) if name == "cel")) {
        return Ok(None);
    }
    let (Some(result), Some(value), Some(name)) = (args.pop(), args.pop(), args.pop()) else { return Ok(None) };
    let name = name_of(helper, &name)?;
    let iter_range = helper.next_expr(Expr::List(ListExpr::new(Vec::new())));
    let loop_cond = truth(helper, false);
    let loop_step = ident(helper, &name);
    Ok(Some(helper.next_expr(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range,
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name,
        accu_init: value,
        loop_cond,
        loop_step,
        result,
    })))))
}

/// The parts of a fold with two variables.
struct Parts {
    start: IdedExpr,
    condition: IdedExpr,
    step: IdedExpr,
    result: IdedExpr,
}

fn fold(helper: &mut MacroExprHelper<'_>, range: IdedExpr, (first, second): (String, String), parts: Parts) -> IdedExpr {
    helper.next_expr(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: range,
        iter_var: first,
        iter_var2: Some(second),
        accu_var: RESULT.to_owned(),
        accu_init: parts.start,
        loop_cond: parts.condition,
        loop_step: parts.step,
        result: parts.result,
    })))
}

fn quantified(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
    quantifier: Quantifier,
) -> Expanded {
    let (Some(range), Some(test), Some(second), Some(first)) = (target.take(), args.pop(), args.pop(), args.pop()) else { return Ok(None) };
    let names = (name_of(helper, &first)?, name_of(helper, &second)?);
    let accumulator = ident(helper, RESULT);
    let (start, condition, step) = match quantifier {
        Quantifier::All => {
            let before = ident(helper, RESULT);
            (truth(helper, true), call(helper, "@not_strictly_false", vec![before]), call(helper, "_&&_", vec![accumulator, test]))
        }
        Quantifier::Exists => {
            let before = ident(helper, RESULT);
            let not = call(helper, "!_", vec![before]);
            (truth(helper, false), call(helper, "@not_strictly_false", vec![not]), call(helper, "_||_", vec![accumulator, test]))
        }
        Quantifier::ExistsOne => {
            let one = number(helper, 1);
            let (before, more) = (ident(helper, RESULT), call(helper, "_+_", vec![accumulator, one]));
            (number(helper, 0), truth(helper, true), call(helper, "_?_:_", vec![test, more, before]))
        }
    };
    let mut result = ident(helper, RESULT);
    if matches!(quantifier, Quantifier::ExistsOne) {
        let one = number(helper, 1);
        result = call(helper, "_==_", vec![result, one]);
    }
    Ok(Some(fold(helper, range, names, Parts { start, condition, step, result })))
}

fn transformed(helper: &mut MacroExprHelper<'_>, target: &mut Option<IdedExpr>, args: &mut Vec<IdedExpr>, shape: Shape) -> Expanded {
    let mut given = args.drain(..);
    let (Some(range), Some(first), Some(second), Some(third)) = (target.take(), given.next(), given.next(), given.next()) else {
        return Ok(None);
    };
    let (filter, made) = match given.next() {
        Some(made) => (Some(third), made),
        None => (None, third),
    };
    drop(given);
    let names = (name_of(helper, &first)?, name_of(helper, &second)?);
    let accumulator = ident(helper, RESULT);
    let (start, added) = match shape {
        Shape::List => {
            let one = helper.next_expr(Expr::List(ListExpr::new(vec![made])));
            (helper.next_expr(Expr::List(ListExpr::new(Vec::new()))), call(helper, "_+_", vec![accumulator, one]))
        }
        Shape::Map | Shape::Entries => {
            let args = match shape {
                Shape::Map => vec![accumulator, ident(helper, &names.0), made],
                _ => vec![accumulator, made],
            };
            (helper.next_expr(Expr::Map(MapExpr::default())), call(helper, MAP_INSERT, args))
        }
    };
    let step = match filter {
        Some(filter) => {
            let unchanged = ident(helper, RESULT);
            call(helper, "_?_:_", vec![filter, added, unchanged])
        }
        None => added,
    };
    let (condition, result) = (truth(helper, true), ident(helper, RESULT));
    Ok(Some(fold(helper, range, names, Parts { start, condition, step, result })))
}
