//! `skiff image`: commands for the node's image store, also while the node runs.

mod inspect;

use anyhow::Context as _;
use node_images::{Image, ImageStore, PullPolicy};
use runtimes_contract::ContentKind;
use runtimes_wasmtime::{Detail, Inspector};

use crate::cli::{self, DataDirArgs};
use crate::data_dir::DataDir;
use crate::internal::{self, Job};
use crate::say;

/// The size of the disk divided by this number stays free. Only the agent knows the node's own thresholds.
const FREE_MIN_SHARE: u64 = 100;

/// Runs one of the commands.
pub async fn run(command: cli::Image) -> anyhow::Result<()> {
    match command {
        cli::Image::Import { data_dir, name, file } => {
            let image = store(&data_dir, Vec::new())?.import(&name, &file).await?;
            say::line(format_args!("{}\t{}", image.references.first().map_or("", String::as_str), image.id));
            inspect::print_imports(&data_dir.open()?, &image).await?;
        }
        cli::Image::Inspect { data_dir, name } => {
            let store = store(&data_dir, Vec::new())?;
            let image = store.get(&name).await?.with_context(|| format!("no such image: {name}"))?;
            inspect::print(&data_dir.open()?, &image).await?;
        }
        cli::Image::List { data_dir } => list(&store(&data_dir, Vec::new())?.list().await?),
        cli::Image::Pull { data_dir, insecure_registry, name } => {
            let image = store(&data_dir, insecure_registry)?.pull(&name, PullPolicy::Always, &[]).await?;
            say::line(&image.id);
            inspect::print_imports(&data_dir.open()?, &image).await?;
        }
        cli::Image::Rm { data_dir, name } => store(&data_dir, Vec::new())?.remove(&name).await?,
    }
    Ok(())
}

/// The store of a data directory.
pub fn store(data_dir: &DataDirArgs, insecure_registries: Vec<String>) -> anyhow::Result<ImageStore> {
    open(&data_dir.open()?, insecure_registries)
}

/// The store of an open data directory.
pub fn open(data_dir: &DataDir, insecure_registries: Vec<String>) -> anyhow::Result<ImageStore> {
    let store = ImageStore::open(&data_dir.at("images"), internal::helper(data_dir, Job::Unpack)?)?;
    let store = store.with_insecure_registries(insecure_registries).with_free_min(|all| all / FREE_MIN_SHARE);
    with_module_check(store, data_dir)
}

/// A confined process reads each module that comes into the store.
pub fn with_module_check(store: ImageStore, data_dir: &DataDir) -> anyhow::Result<ImageStore> {
    let inspector = inspector(&store, data_dir)?;
    Ok(store.with_module_check(move |file| {
        let inspector = inspector.clone();
        async move { inspector.inspect(&file, Detail::Names).await.map(drop) }
    }))
}

fn inspector(store: &ImageStore, data_dir: &DataDir) -> anyhow::Result<Inspector> {
    Ok(Inspector::new(internal::helper(data_dir, Job::Inspect)?, store.dir().join("tmp")))
}

fn list(images: &[Image]) {
    let rows: Vec<[String; 4]> = images
        .iter()
        .flat_map(|image| {
            let kind = match image.kind {
                ContentKind::Wasm => "wasm",
                ContentKind::Linux => "linux",
            };
            let id: String = image.id.trim_start_matches("sha256:").chars().take(12).collect();
            image.references.iter().map(move |name| [name.clone(), kind.to_owned(), id.clone(), size(image.size_bytes)])
        })
        .collect();
    let width = rows.iter().map(|[name, ..]| name.len()).max().unwrap_or(0).max(4);
    say::line(format_args!("{:width$}  {:5}  {:12}  SIZE", "NAME", "KIND", "ID"));
    for [name, kind, id, size] in &rows {
        say::line(format_args!("{name:width$}  {kind:5}  {id:12}  {size}"));
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{}.{} kB", bytes / 1_000, bytes % 1_000 / 100),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}
