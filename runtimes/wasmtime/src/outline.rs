//! What is to be read of a module or component without its code: the names that the outermost one imports and exports. Pure.

use wasmparser::{Error, Parser, Payload};

/// A name of the outermost module or component; nested ones are its own affair.
pub(crate) enum Name<'a> {
    /// Of a core module: the name of the other module, and that in it.
    ModuleImport(&'a str, &'a str),
    /// Of a core module.
    ModuleExport(&'a str),
    /// Of a component.
    ComponentImport(&'a str),
    /// Of a component.
    ComponentExport(&'a str),
}

/// Passes on each name, in the order of the file.
pub(crate) fn each_name<'a>(bytes: &'a [u8], mut visit: impl FnMut(Name<'a>)) -> Result<(), Error> {
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ImportSection(section) if depth == 1 => {
                for import in section.into_imports() {
                    let import = import?;
                    visit(Name::ModuleImport(import.module, import.name));
                }
            }
            Payload::ExportSection(section) if depth == 1 => {
                for export in section {
                    visit(Name::ModuleExport(export?.name));
                }
            }
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section {
                    visit(Name::ComponentImport(import?.name.name));
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    visit(Name::ComponentExport(export?.name.name));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
