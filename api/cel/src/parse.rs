//! Parses a text to a tree. The grammar is that of the `cel` crate. The nesting of a text is limited before the parser
//! runs, because parser and evaluator are recursive.

mod guard;

use std::sync::LazyLock;
use std::thread;

use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, LiteralValue, SourceInfo};
use cel::{IdedExpr, ParseError};

use crate::error::{CompileError, Issue};
use crate::functions;
use crate::library;
use crate::macros;
use crate::node::{Entry, Fold, Kind, Literal, Node};

/// The maximum depth of a parsed expression, with expanded macros. The recursion of the evaluation is as deep.
pub(crate) const DEPTH_MAX: usize = 200;
/// The stack of the parser, which makes about ten nested calls for each level.
const PARSER_STACK_BYTES: usize = 64 << 20;
/// The recursion limit of the `cel` crate's parser.
const PARSER_DEPTH_MAX: u16 = 250;

/// The environment of CEL with the macros of Kubernetes.
static GRAMMAR: LazyLock<cel::Env> = LazyLock::new(|| {
    let mut env = cel::Env::stdlib();
    for one in macros::all() {
        // Cannot fail: no standard macro has the same name and number of arguments.
        let _ = env.add_macro(one);
    }
    env
});

/// An expression and its text.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) root: Node,
    pub(crate) source: String,
}

/// Parses a text.
pub(crate) fn parse(text: &str) -> Result<Parsed, CompileError> {
    guard::check(text)?;
    let parsed = thread::scope(|scope| {
        let parser = thread::Builder::new().name("cel-parser".to_owned()).stack_size(PARSER_STACK_BYTES);
        let parsing = parser.spawn_scoped(scope, || grammar(text)).map_err(|error| CompileError::no_thread(&error))?;
        parsing.join().unwrap_or_else(|_| Err(CompileError::of_text("ERROR: <input>:1:1: Syntax error: the parser gave up")))
    })?;
    if depth(&parsed.root, 0) > DEPTH_MAX {
        return Err(too_deep());
    }
    Ok(parsed)
}

fn too_deep() -> CompileError {
    CompileError::of_text(format!("ERROR: <input>:-1:0: expression recursion limit exceeded: {DEPTH_MAX}"))
}

/// The depth of an expression, counted up to `DEPTH_MAX`.
fn depth(node: &Node, above: usize) -> usize {
    if above > DEPTH_MAX {
        return above;
    }
    node.children().into_iter().map(|child| depth(child, above + 1)).max().unwrap_or(above + 1)
}

fn grammar(text: &str) -> Result<Parsed, CompileError> {
    let parser = GRAMMAR.parser().enable_ident_escape_syntax(true).max_recursion_depth(PARSER_DEPTH_MAX);
    let (expression, places) = parser.parse_with_source_info(text).map_err(|errors| syntax(&errors.errors, text))?;
    let converted = Converter { places: &places, offsets: Offsets::new(text) };
    let root = converted.node(expression).map_err(|issue| CompileError::new(vec![issue], text))?;
    Ok(Parsed { root, source: text.to_owned() })
}

fn syntax(errors: &[ParseError], text: &str) -> CompileError {
    let issue = |error: &ParseError| {
        let (line, column) = (usize::try_from(error.pos.0).unwrap_or(1), usize::try_from(error.pos.1).unwrap_or(1));
        let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
        let line = text.get(before..).unwrap_or_default();
        let within = line.char_indices().nth(column.saturating_sub(1)).map_or(line.trim_end_matches('\n').len(), |(at, _)| at);
        let is_known = ["invalid", "unsupported", "argument", "undeclared"].iter().any(|word| error.msg.starts_with(word));
        let message =
            if is_known || error.msg.starts_with("Syntax error") { error.msg.clone() } else { format!("Syntax error: {}", error.msg) };
        Issue { at: before + within, message }
    };
    CompileError::new(errors.iter().map(issue).collect(), text)
}

/// Converts offsets in characters, as the parser counts, to offsets in bytes.
enum Offsets {
    Ascii,
    Characters(Vec<usize>),
}

impl Offsets {
    fn new(text: &str) -> Self {
        if text.is_ascii() { Self::Ascii } else { Self::Characters(text.char_indices().map(|(at, _)| at).collect()) }
    }

    fn byte(&self, at: usize) -> usize {
        match self {
            Self::Ascii => at,
            Self::Characters(places) => places.get(at).copied().unwrap_or(at),
        }
    }
}

struct Converter<'p> {
    places: &'p SourceInfo,
    offsets: Offsets,
}

impl Converter<'_> {
    fn at(&self, id: u64) -> usize {
        self.offsets.byte(self.places.offset_for(id).map_or(0, |(start, _)| start as usize))
    }

    fn node(&self, expression: IdedExpr) -> Result<Node, Issue> {
        let at = self.at(expression.id);
        let kind = match expression.expr {
            Expr::Unspecified => return Err(Issue { at, message: "Syntax error: expression expected".to_owned() }),
            Expr::Literal(literal) => Kind::Literal(convert_literal(literal)),
            Expr::Ident(name) => Kind::Ident(name.trim_start_matches('.').into()),
            Expr::Select(select) => {
                Kind::Select { operand: Box::new(self.node(*select.operand)?), field: select.field.into(), is_test: select.test }
            }
            Expr::Call(call) => self.call(call.func_name, call.target.map(|target| *target), call.args)?,
            Expr::List(list) => {
                let entry =
                    |(index, element)| Ok(Entry { value: self.node(element)?, is_optional: list.optional_indices.contains(&index) });
                Kind::List(list.elements.into_iter().enumerate().map(entry).collect::<Result<_, Issue>>()?)
            }
            Expr::Map(map) => Kind::Map(map.entries.into_iter().map(|entry| self.map_entry(entry)).collect::<Result<_, _>>()?),
            Expr::Struct(made) => Kind::Message {
                name: made.type_name.trim_start_matches('.').into(),
                fields: made.entries.into_iter().map(|entry| self.message_field(entry)).collect::<Result<_, _>>()?,
            },
            Expr::Comprehension(fold) => Kind::Fold(Box::new(Fold {
                range: self.node(fold.iter_range)?,
                variable: fold.iter_var.into(),
                second: fold.iter_var2.map(Into::into),
                accumulator: fold.accu_var.into(),
                start: self.node(fold.accu_init)?,
                condition: self.node(fold.loop_cond)?,
                step: self.node(fold.loop_step)?,
                result: self.node(fold.result)?,
            })),
        };
        Ok(Node { at, kind })
    }

    /// A call. A function with a qualified name (`sets.contains`) looks like a member call, but is a global function.
    fn call(&self, name: String, target: Option<IdedExpr>, args: Vec<IdedExpr>) -> Result<Kind, Issue> {
        let target = target.map(|target| self.node(target)).transpose()?;
        let mut args = args.into_iter().map(|arg| self.node(arg)).collect::<Result<Vec<_>, _>>()?;
        let qualified = target.as_ref().and_then(Node::qualified_name).map(|prefix| format!("{prefix}.{name}"));
        let (function, is_member): (Box<str>, bool) = match (qualified.filter(|name| functions::is_known(name)), target) {
            (Some(whole), _) => (whole.into(), false),
            (None, Some(target)) => {
                args.insert(0, target);
                (name.into(), true)
            }
            (None, None) => (name.trim_start_matches('.').into(), false),
        };
        let pattern = library::regex::written_out(&function, &args).map(Box::new);
        Ok(Kind::Call { function, is_member, args, pattern })
    }

    fn map_entry(&self, entry: IdedEntryExpr) -> Result<(Node, Entry), Issue> {
        match entry.expr {
            EntryExpr::MapEntry(map) => Ok((self.node(map.key)?, Entry { value: self.node(map.value)?, is_optional: map.optional })),
            EntryExpr::StructField(_) => Err(Issue { at: self.at(entry.id), message: "Syntax error: key expected".to_owned() }),
        }
    }

    fn message_field(&self, entry: IdedEntryExpr) -> Result<(Box<str>, Entry), Issue> {
        match entry.expr {
            EntryExpr::StructField(field) => {
                Ok((field.field.into(), Entry { value: self.node(field.value)?, is_optional: field.optional }))
            }
            EntryExpr::MapEntry(_) => Err(Issue { at: self.at(entry.id), message: "Syntax error: field expected".to_owned() }),
        }
    }
}

fn convert_literal(literal: LiteralValue) -> Literal {
    match literal {
        LiteralValue::Null => Literal::Null,
        LiteralValue::Boolean(flag) => Literal::Bool(*flag.inner()),
        LiteralValue::Int(number) => Literal::Int(*number.inner()),
        LiteralValue::UInt(number) => Literal::Uint(*number.inner()),
        LiteralValue::Double(number) => Literal::Double(*number.inner()),
        LiteralValue::String(text) => Literal::String(text.inner().into()),
        LiteralValue::Bytes(bytes) => Literal::Bytes(bytes.inner().into()),
    }
}
