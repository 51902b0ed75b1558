//! The information about fields in the Go types beside a `generated.proto`: their tags have the JSON names, and whether a type
//! is a pointer or a zero is written decides whether a zero has a meaning.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::Error;

/// A field, by what JSON sees of it.
pub struct Field {
    /// Empty for an embedded type, whose fields stand among its parent's.
    pub name: String,
    /// Go's pointers tell nothing from zero; what is not `omitempty` is written when it is zero.
    pub keeps_zero: bool,
}

/// The types of a package.
#[derive(Default)]
pub struct Types {
    /// The API group.
    pub group: String,
    /// By type and protobuf's number; none for what JSON writes in a way of its own.
    fields: HashMap<(String, u32), Field>,
    /// Types that are lists, which are messages nevertheless.
    lists: HashSet<String>,
}

impl Types {
    /// Reads a package's sources, but for those that were generated from them, and tests.
    pub fn read(directory: &Path) -> Result<Self, Error> {
        let mut types = Self::default();
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_left_out = name.starts_with("generated") || name.starts_with("zz_") || name.ends_with("_test.go");
            if name.ends_with(".go") && !is_left_out {
                types.add(&std::fs::read_to_string(&path)?);
            }
        }
        Ok(types)
    }

    pub fn field(&self, message: &str, tag: u32) -> Option<&Field> {
        self.fields.get(&(message.to_owned(), tag))
    }

    pub fn is_list(&self, message: &str) -> bool {
        self.lists.contains(message)
    }

    fn add(&mut self, source: &str) {
        let mut within = None;
        for line in source.lines() {
            if let Some(declared) = line.strip_prefix("type ") {
                within = declared.strip_suffix(" struct {");
                self.lists.extend(declared.split_once(" []").map(|(name, _)| name.to_owned()));
            } else if let Some(group) = line.strip_prefix("const GroupName = ") {
                group.trim_matches('"').clone_into(&mut self.group);
            } else if line.starts_with('}') {
                within = None;
            } else if let Some(name) = within
                && let Some((tag, field)) = field(line.trim_start())
            {
                self.fields.insert((name.to_owned(), tag), field);
            }
        }
    }
}

/// The field that a line of a struct declares, with its number.
fn field(line: &str) -> Option<(u32, Field)> {
    let (declared, tags) = line.split_once('`').filter(|_| !line.starts_with("//"))?;
    let number = tag(tags, "protobuf")?.split(',').nth(1)?.parse().ok()?;
    let mut json = tag(tags, "json")?.split(',');
    let name = json.next().filter(|name| *name != "-")?.to_owned();
    let is_pointer = declared.split_whitespace().nth(1).is_some_and(|kind| kind.starts_with('*'));
    Some((number, Field { name, keeps_zero: is_pointer || json.all(|option| !option.starts_with("omit")) }))
}

/// The value of a tag of that name.
fn tag<'a>(tags: &'a str, name: &str) -> Option<&'a str> {
    tags.split_once(&format!("{name}:\""))?.1.split('"').next()
}
