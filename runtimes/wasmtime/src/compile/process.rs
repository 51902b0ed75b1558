//! The confined process that compiles what it is asked for. Its first file is the module, its second gets the machine
//! code. It accepts no machine code from outside, so that nobody can pass foreign code to the node by it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use runtimes_host::helper::{Fault, Rights, serve};
use serde::{Deserialize, Serialize};

use super::{MODULE_LEN_MAX, Optimization, Purpose, abi_of, compile, engine, fingerprint, proposals::explained};
use crate::kind::{Abi, Kind};
use crate::settings::CodeSettings;

/// What is compiled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    /// What runs the code.
    pub purpose: Purpose,
    /// How fast the code is.
    pub optimization: Optimization,
    /// What shapes the code beside the module. A plugin has settings of its own.
    pub settings: CodeSettings,
}

/// The result.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// How the code is run.
    pub kind: Kind,
    /// What the engine that runs it must have.
    pub abi: Abi,
    /// What code with [`Abi::Sync`] depends on; see [`fingerprint`]. That of the other ABI depends on the same.
    pub fingerprint: String,
}

/// Compiles one module and ends the process. See [`serve`].
pub fn serve_compile() -> ! {
    serve(Rights::Memory, answer)
}

fn answer(question: Question, files: Vec<File>) -> Result<Answer, Fault> {
    let system = |error: io::Error| Fault::System(error.to_string());
    let [module, code] = <[File; 2]>::try_from(files).map_err(|_| system(io::ErrorKind::InvalidInput.into()))?;
    let mut bytes = Vec::new();
    module.take(MODULE_LEN_MAX).read_to_end(&mut bytes).map_err(system)?;
    let abi = match question.purpose {
        Purpose::Container => abi_of(&bytes),
        Purpose::Plugin => Abi::Sync,
    };
    let engine_of = |abi| engine(&question, abi).map_err(|error| Fault::System(format!("{error:#}")));
    let (usual, engine) = (engine_of(Abi::Sync)?, engine_of(abi)?);
    let Question { purpose, ref settings, .. } = question;
    let compiled = compile(&engine, abi, purpose, &bytes).map_err(|complaint| {
        let explained = if purpose == Purpose::Container { explained(complaint, &bytes, &settings.proposals) } else { complaint };
        Fault::Content(explained.to_string())
    })?;
    let written = (&code).write_all(&compiled.code);
    written.map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Fault::DiskFull("no space left on the device".to_owned()),
        io::ErrorKind::FileTooLarge => Fault::Limit("its machine code is too large".to_owned()),
        _ => system(error),
    })?;
    Ok(Answer { kind: compiled.kind, abi: compiled.abi, fingerprint: fingerprint(&usual) })
}
