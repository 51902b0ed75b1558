//! What a module is: validated, and its imports, exports and proposals listed. Its bytes are hostile, so a confined process reads them
//! ([`serve_inspect`]); [`Inspector`] starts one. The report is not evidence: a hostile module may make the process write anything.

mod proposals;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use runtimes_contract::RuntimeError;
use runtimes_host::blocking;
use runtimes_host::helper::{Fault, Helper, HelperError, Job, Rights, serve};
use serde::{Deserialize, Serialize};
use wasmparser::{Error, Parser, Validator, WasmFeatures};

use crate::compile::{ANSWER_LEN_MAX, ERROR_LEN_MAX, MODULE_LEN_MAX, bounds, machine_bytes, one_line};
use crate::kind::Kind;
use crate::outline::{Name, each_name};

/// The most names in a list, and the most characters of one.
const NAMES_MAX: usize = 500;
const NAME_LEN_MAX: usize = 200;
/// The most bytes of the names of a list in the message of the process that reads them: a control character is six.
const NAMES_JSON_LEN_MAX: usize = 64 << 10;

/// What a module is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleReport {
    /// Whether it is a component; else it is a core module.
    pub is_component: bool,
    /// How a container runs it; `None` when it has nothing that a container runs.
    pub kind: Option<Kind>,
    /// What it imports: interfaces of a component, functions and the like of a core module with the names of their modules.
    pub imports: Names,
    /// What it exports.
    pub exports: Names,
    /// The proposals beyond WebAssembly 1.0 that it needs, as their repositories are called. Empty when they were not asked for.
    pub proposals: Vec<String>,
}

/// A list of names, without those that are too many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// In the order of the module.
    pub names: Vec<String>,
    /// How many more there are.
    pub omitted: usize,
}

/// A list of names that grows.
#[derive(Default)]
struct Listing {
    list: Names,
    /// The bytes of its names as JSON.
    json_len: usize,
}

impl Listing {
    /// Adds a name, or counts it as omitted; the first that is omitted ends the list.
    fn add(&mut self, name: &str) {
        let name: String = name.chars().take(NAME_LEN_MAX).collect();
        let json_len = self.json_len + serde_json::Value::from(name.as_str()).to_string().len();
        if self.list.omitted > 0 || self.list.names.len() >= NAMES_MAX || json_len > NAMES_JSON_LEN_MAX {
            self.list.omitted += 1;
            return;
        }
        self.json_len = json_len;
        self.list.names.push(name);
    }
}

/// What to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detail {
    /// Whether it is valid, imports and exports: the module is read once.
    Names,
    /// Also the proposals: the module is read once more for each.
    Proposals,
}

/// Starts confined processes that read modules.
#[derive(Clone, Debug)]
pub struct Inspector {
    helper: Helper,
    /// On which the process mounts its empty root, in a mount namespace of its own.
    dir: PathBuf,
}

impl Inspector {
    /// `helper` starts a program that calls [`serve_inspect`]; the directory exists.
    pub fn new(helper: Helper, dir: impl Into<PathBuf>) -> Self {
        Self { helper, dir: dir.into() }
    }

    /// Reads a module.
    ///
    /// # Errors
    /// [`RuntimeError::BadContent`] when it is not valid, whichever proposals are on, or exceeds a limit.
    pub async fn inspect(&self, module: &Path, detail: Detail) -> Result<ModuleReport, RuntimeError> {
        let (path, reading) = (module.to_owned(), format!("reading {}", module.display()));
        let opened = blocking(move || {
            let file = File::open(path)?;
            let len = file.metadata()?.len();
            Ok::<_, io::Error>((file, len))
        });
        let (file, len) = opened.await.map_err(RuntimeError::io(reading))?;
        if len > MODULE_LEN_MAX {
            return Err(RuntimeError::BadContent(format!("the WebAssembly file has {len} bytes; at most {MODULE_LEN_MAX} are read")));
        }
        let job = Job { root: &self.dir, bounds: bounds(len, machine_bytes(), 1), question: detail, files: vec![OwnedFd::from(file)] };
        self.helper.run(job).await.map_err(|error| match error {
            HelperError::Fault(Fault::Content(why)) => RuntimeError::BadContent(one_line(&why, ANSWER_LEN_MAX)),
            error if error.is_inputs_fault() => {
                RuntimeError::BadContent(one_line(&format!("the WebAssembly module cannot be read: {error}"), ANSWER_LEN_MAX))
            }
            error => RuntimeError::io("reading a WebAssembly module")(io::Error::other(error)),
        })
    }
}

/// Reads one module and ends the process. See [`serve`].
pub fn serve_inspect() -> ! {
    serve(Rights::Memory, answer)
}

fn answer(detail: Detail, files: Vec<File>) -> Result<ModuleReport, Fault> {
    let system = |error: io::Error| Fault::System(error.to_string());
    let [module] = <[File; 1]>::try_from(files).map_err(|_| system(io::ErrorKind::InvalidInput.into()))?;
    let mut bytes = Vec::new();
    module.take(MODULE_LEN_MAX).read_to_end(&mut bytes).map_err(system)?;
    report(&bytes, detail).map_err(|error| Fault::Content(complaint(&error)))
}

fn complaint(error: &Error) -> String {
    let text = one_line(&error.to_string(), ERROR_LEN_MAX);
    let remedy = if text.contains("unexpected end") { "; the file is cut: make the image again" } else { "" };
    format!("invalid WebAssembly: {text}{remedy}")
}

/// Pure: what the bytes are.
fn report(bytes: &[u8], detail: Detail) -> Result<ModuleReport, Error> {
    Validator::new_with_features(WasmFeatures::all()).validate_all(bytes)?;
    let mut report = names(bytes)?;
    if detail == Detail::Proposals {
        report.proposals = proposals::of(bytes).into_iter().map(str::to_owned).collect();
    }
    Ok(report)
}

/// The names of the outermost module or component.
fn names(bytes: &[u8]) -> Result<ModuleReport, Error> {
    let (mut imports, mut exports) = (Listing::default(), Listing::default());
    let (mut has_start, mut component_exports) = (false, Vec::new());
    each_name(bytes, |name| match name {
        Name::ModuleImport(module, name) => imports.add(&format!("{module} {name}")),
        Name::ModuleExport(name) => {
            has_start |= name == "_start";
            exports.add(name);
        }
        Name::ComponentImport(name) => imports.add(name),
        Name::ComponentExport(name) => {
            component_exports.push(name);
            exports.add(name);
        }
    })?;
    let is_component = Parser::is_component(bytes);
    // By all exports: not all are in the list.
    let kind = match is_component {
        true => Kind::of_component(component_exports.into_iter()),
        false => has_start.then_some(Kind::Module),
    };
    Ok(ModuleReport { is_component, kind, imports: imports.list, exports: exports.list, proposals: Vec::new() })
}

#[cfg(test)]
mod tests;
