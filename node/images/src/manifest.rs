//! Reading manifests, pure: which entry of an index runs on this node, what an image's manifest and
//! configuration say, and whether it is WASM or Linux.
//!
//! WASM comes in three forms: the CNCF artifact (`application/vnd.wasm.config.v0+json` with one
//! `application/wasm` layer), older artifacts with vendors' layer types, and Linux-style images whose
//! entrypoint is a `.wasm` file.

use runtimes_host::helper::size;
use serde::Deserialize;
use thiserror::Error;

use crate::ImageConfig;

/// The media types in the `Accept` header.
pub(crate) const ACCEPTED: &[&str] = &[
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// The types of layers that are a module. <https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact>, and the types
/// of older tools.
const WASM_LAYERS: &[&str] = &[
    "application/wasm",
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
    "application/vnd.bytecodealliance.wasm.component.layer.v0+wasm",
    "application/vnd.bytecodealliance.component.v1+wasm",
];

/// The highest number of layers in one image.
const LAYERS_MAX: usize = 128;

/// The most bytes of command, environment and the rest of a configuration that describes how to run the image. They are stored
/// in the list of images, which is read again and again, and are passed to each container.
const CONFIG_LEN_MAX: usize = 256 << 10;
/// The longest module that is compiled.
const MODULE_LEN_MAX: u64 = 256 << 20;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: String,
    #[serde(default)]
    pub size: u64,
    #[serde(default)]
    pub platform: Option<Platform>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Platform {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
}

/// A manifest or an index; the fields tell which.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Document {
    #[serde(default)]
    pub manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    pub config: Option<Descriptor>,
    #[serde(default)]
    pub layers: Vec<Descriptor>,
}

/// The result of reading a manifest with its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The layer of that digest is the module.
    Module { layer: String },
    /// Layers to unpack, with the digests of their tar archives.
    Layers { layers: Vec<(String, String)>, wasm_file: Option<String> },
}

#[derive(Clone, Debug, Default, Deserialize)]
struct ConfigFile {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    config: Option<ConfigBody>,
    #[serde(default)]
    rootfs: Option<RootFs>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConfigBody {
    #[serde(default)]
    entrypoint: Option<Vec<String>>,
    #[serde(default)]
    cmd: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<String>>,
    #[serde(default)]
    working_dir: Option<String>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    stop_signal: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

/// Why an image cannot run, by its manifest and configuration.
#[derive(Debug, Error)]
pub(crate) enum ManifestError {
    #[error("its manifest is malformed: {0}")]
    Malformed(serde_json::Error),
    #[error("its configuration is malformed: {0}")]
    MalformedConfig(serde_json::Error),
    #[error("no matching manifest for linux/{here} or wasi/wasm in the manifest list entries")]
    NoMatch { here: &'static str },
    #[error("it has {0} layers; at most {LAYERS_MAX} are supported")]
    TooManyLayers(usize),
    #[error("it holds {0} WASM layers; a WASM artifact has exactly one")]
    ManyModules(usize),
    #[error("it is neither a WASM artifact nor a Linux image (config media type {0:?})")]
    ConfigType(String),
    #[error("its configuration names {config} layers, its manifest {manifest}")]
    LayerCount { config: usize, manifest: usize },
    #[error("it is built for {os}/{architecture}, this node runs linux/{here} and WASM")]
    Platform { os: String, architecture: String, here: &'static str },
    #[error("its module is {} long; at most {} are compiled", size(*.0), size(MODULE_LEN_MAX))]
    ModuleLen(u64),
    #[error("command and environment of its configuration take more than {} KiB", CONFIG_LEN_MAX >> 10)]
    ConfigLen,
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Document, ManifestError> {
    serde_json::from_slice(bytes).map_err(ManifestError::Malformed)
}

/// The entry of an index that runs here: this machine's Linux first, then WASM.
pub(crate) fn choose(entries: &[Descriptor]) -> Result<&Descriptor, ManifestError> {
    let platform = |entry: &Descriptor| entry.platform.clone().unwrap_or_default();
    let here = go_architecture();
    entries
        .iter()
        .find(|entry| platform(entry).os == "linux" && platform(entry).architecture == here)
        .or_else(|| entries.iter().find(|entry| platform(entry).architecture == "wasm"))
        .or_else(|| entries.iter().find(|entry| entry.platform.is_none() && entries.len() == 1))
        .ok_or(ManifestError::NoMatch { here })
}

/// The architecture in Go's spelling, which images use.
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The content of the manifest and its configuration, or why the image cannot run.
pub(crate) fn shape(manifest: &Document, config: &[u8]) -> Result<(Shape, ImageConfig), ManifestError> {
    let config_type = manifest.config.as_ref().map_or("", |c| c.media_type.as_str());
    if manifest.layers.len() > LAYERS_MAX {
        return Err(ManifestError::TooManyLayers(manifest.layers.len()));
    }
    let modules: Vec<&Descriptor> = manifest.layers.iter().filter(|layer| WASM_LAYERS.contains(&layer.media_type.as_str())).collect();
    if let [module] = modules.as_slice() {
        check_module_len(module.size)?;
        // Some artifact configurations are not JSON objects; what can be read is used.
        let file: ConfigFile = serde_json::from_slice(config).unwrap_or_default();
        return Ok((Shape::Module { layer: module.digest.clone() }, run_config(file.config.unwrap_or_default())?));
    }
    if modules.len() > 1 {
        return Err(ManifestError::ManyModules(modules.len()));
    }
    if !matches!(config_type, "application/vnd.oci.image.config.v1+json" | "application/vnd.docker.container.image.v1+json") {
        return Err(ManifestError::ConfigType(config_type.to_owned()));
    }
    let file: ConfigFile = serde_json::from_slice(config).map_err(ManifestError::MalformedConfig)?;
    let diff_ids = file.rootfs.clone().unwrap_or_default().diff_ids;
    if diff_ids.len() != manifest.layers.len() {
        return Err(ManifestError::LayerCount { config: diff_ids.len(), manifest: manifest.layers.len() });
    }
    let wasm = file.architecture == "wasm" || matches!(file.os.as_str(), "wasi" | "wasip1" | "wasip2");
    if !wasm && (file.os != "linux" || file.architecture != go_architecture()) {
        return Err(ManifestError::Platform { os: file.os, architecture: file.architecture, here: go_architecture() });
    }
    let config = run_config(file.config.unwrap_or_default())?;
    let first = config.entrypoint.first().or(config.cmd.first()).map(String::as_str).unwrap_or_default();
    let wasm_file = (wasm || first.ends_with(".wasm")).then(|| absolute(&config.working_dir, first));
    let layers = manifest.layers.iter().map(|layer| layer.digest.clone()).zip(diff_ids).collect();
    Ok((Shape::Layers { layers, wasm_file }, config))
}

/// Whether a module can be compiled anywhere, by its length.
pub(crate) fn check_module_len(len: u64) -> Result<(), ManifestError> {
    match len {
        0..=MODULE_LEN_MAX => Ok(()),
        _ => Err(ManifestError::ModuleLen(len)),
    }
}

fn run_config(body: ConfigBody) -> Result<ImageConfig, ManifestError> {
    let lists = [&body.entrypoint, &body.cmd, &body.env].into_iter().flatten().flatten();
    let texts = [&body.working_dir, &body.user, &body.stop_signal].into_iter().flatten();
    // A string needs some bytes of its own, even when it is empty.
    let len = lists.chain(texts).fold(0_usize, |sum, text| sum.saturating_add(text.len()).saturating_add(size_of::<String>()));
    if len > CONFIG_LEN_MAX {
        return Err(ManifestError::ConfigLen);
    }
    let pair = |entry: String| {
        let (name, value) = entry.split_once('=').unwrap_or((&entry, ""));
        (name.to_owned(), value.to_owned())
    };
    Ok(ImageConfig {
        entrypoint: body.entrypoint.unwrap_or_default(),
        cmd: body.cmd.unwrap_or_default(),
        env: body.env.unwrap_or_default().into_iter().map(pair).collect(),
        working_dir: body.working_dir.unwrap_or_default(),
        user: body.user.unwrap_or_default(),
        stop_signal: body.stop_signal.unwrap_or_default(),
    })
}

/// A path in the image without its leading slash.
fn absolute(working_dir: &str, path: &str) -> String {
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{working_dir}/{path}") };
    whole.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests;
