//! What an image is, as text for people. The names in a module are its author's: control characters do not reach the terminal.

use node_images::{Image, ImageStore};
use runtimes_wasmtime::{CompiledModule, Detail, Kind, ModuleReport, Names, compiled_module};

use super::{inspector, open, size};
use crate::data_dir::DataDir;
use crate::say;

/// The column of values.
const WIDTH: usize = 12;

/// `skiff image inspect`
pub async fn print(data_dir: &DataDir, image: &Image) -> anyhow::Result<()> {
    let store = open(data_dir, Vec::new())?;
    let mut rows = vec![
        ("Name", image.references.clone()),
        ("Digest", image.digests.clone()),
        ("ID", vec![image.id.clone()]),
        ("Size", vec![size(image.size_bytes)]),
        ("Entrypoint", vec![words(&image.config.entrypoint)]),
        ("Command", vec![words(&image.config.cmd)]),
    ];
    match report(&store, data_dir, image, Detail::Proposals).await? {
        None => rows.push(("Kind", vec!["Linux root file system".to_owned()])),
        Some(report) => {
            let (compiled_dir, digest) = (data_dir.at("compiled"), image.module_digest().unwrap_or(&image.id).to_owned());
            let compiled = api_tasks::blocking("image-inspect", move || compiled_module(&compiled_dir, &digest)).await??;
            rows.extend(module_rows(&report, compiled));
        }
    }
    for (title, values) in rows {
        let values = values.iter().map(|value| visible(value)).filter(|value| !value.is_empty());
        for (number, value) in values.enumerate() {
            let title = if number == 0 { format!("{title}:") } else { String::new() };
            say::line(format_args!("{title:WIDTH$} {value}"));
        }
    }
    Ok(())
}

/// What an imported or pulled module is, and what it imports: a line, and nothing for a Linux image.
pub async fn print_imports(data_dir: &DataDir, image: &Image) -> anyhow::Result<()> {
    let store = open(data_dir, Vec::new())?;
    if let Some(report) = report(&store, data_dir, image, Detail::Names).await? {
        say::line(visible(&imports_line(&report)));
    }
    Ok(())
}

async fn report(store: &ImageStore, data_dir: &DataDir, image: &Image, detail: Detail) -> anyhow::Result<Option<ModuleReport>> {
    let Some(module) = store.module(image) else { return Ok(None) };
    Ok(Some(inspector(store, data_dir)?.inspect(&module, detail).await?))
}

fn module_rows(report: &ModuleReport, compiled: Option<CompiledModule>) -> Vec<(&'static str, Vec<String>)> {
    let compiled = match compiled {
        None => "not yet".to_owned(),
        Some(CompiledModule { bytes, is_optimized, took }) => {
            let optimized = if is_optimized { "optimized" } else { "not optimized yet" };
            format!("{}, {optimized}, in {took:.1?}", size(bytes))
        }
    };
    let list = |names: &Names| {
        let more = (names.omitted > 0).then(|| format!("and {} more", names.omitted));
        names.names.iter().cloned().chain(more).collect::<Vec<_>>()
    };
    vec![
        ("Kind", vec![kind(report)]),
        ("Compiled", vec![compiled]),
        ("Proposals", vec![report.proposals.join(", ")]),
        ("Imports", list(&report.imports)),
        ("Exports", list(&report.exports)),
    ]
}

fn kind(report: &ModuleReport) -> String {
    let what = if report.is_component { "WebAssembly component" } else { "WebAssembly module" };
    let runs_as = match report.kind {
        Some(Kind::Module) => "a WASI preview 1 program",
        Some(Kind::Command) => "a program (wasi:cli/run)",
        Some(Kind::AsyncCommand) => "a program (wasi:cli/run of WASI 0.3)",
        Some(Kind::Http) => "a server (wasi:http/incoming-handler)",
        Some(Kind::Service) => "a server (wasi:http/handler of WASI 0.3)",
        Some(Kind::Plugin) | None => "nothing that a container runs",
    };
    format!("{what}, {runs_as}")
}

/// The functions of a core module are too many for a line: their modules are named.
fn imports_line(report: &ModuleReport) -> String {
    let mut names: Vec<&str> = report.imports.names.iter().map(String::as_str).collect();
    if !report.is_component {
        names = names.into_iter().map(|name| name.split(' ').next().unwrap_or(name)).collect();
    }
    names.sort_unstable();
    names.dedup();
    match names.as_slice() {
        [] => format!("{}; it imports nothing", kind(report)),
        names => format!("{}; it imports {}", kind(report), names.join(", ")),
    }
}

fn words(words: &[String]) -> String {
    words.join(" ")
}

fn visible(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn names(names: &[&str]) -> Names {
        Names { names: names.iter().map(|name| (*name).to_owned()).collect(), omitted: 0 }
    }

    #[test]
    fn a_module_is_described_in_words() {
        let module = ModuleReport {
            is_component: false,
            kind: Some(Kind::Module),
            imports: names(&["wasi_snapshot_preview1 fd_write", "wasi_snapshot_preview1 proc_exit", "env a\u{1b}[31m"]),
            exports: Names { omitted: 3, ..names(&["_start"]) },
            proposals: vec!["simd".to_owned(), "tail-call".to_owned()],
        };
        assert_eq!(imports_line(&module), "WebAssembly module, a WASI preview 1 program; it imports env, wasi_snapshot_preview1");
        let compiled = CompiledModule { bytes: 35_200_000, is_optimized: false, took: Duration::from_millis(3_412) };
        let rows = module_rows(&module, Some(compiled));
        let row = |title: &str| rows.iter().find(|row| row.0 == title).map(|row| row.1.join("|")).expect("a row");
        assert_eq!(row("Compiled"), "35.2 MB, not optimized yet, in 3.4s");
        assert_eq!((row("Proposals"), row("Exports")), ("simd, tail-call".to_owned(), "_start|and 3 more".to_owned()));
        assert_eq!(visible(&row("Imports")).matches('\u{1b}').count(), 0);
        let component = ModuleReport { is_component: true, kind: Some(Kind::Http), imports: Names::default(), ..module };
        assert_eq!(imports_line(&component), "WebAssembly component, a server (wasi:http/incoming-handler); it imports nothing");
    }
}
