//! The AppArmor profile of a container: whether the kernel enforces profiles, which one a container runs under, and whether it is
//! loaded. A Pod names a profile that the administrator has loaded on the node (`Localhost`), or it runs under the node's default
//! profile, which is loaded when the first container needs it. Runtimes get the profile's name. The rules are those of the
//! kubelet (`pkg/security/apparmor`) and of containerd.

mod default_profile;

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod, PodSpec};
use thiserror::Error;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::container::{self, security};

/// The annotation that preceded the field `appArmorProfile`; the container's name follows. Newer API servers copy it to the field,
/// static Pods may have it alone.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
/// The values of the annotation.
const ANNOTATION_DEFAULT: &str = "runtime/default";
const ANNOTATION_UNCONFINED: &str = "unconfined";
const ANNOTATION_LOCALHOST: &str = "localhost/";

/// The types of a profile.
const RUNTIME_DEFAULT: &str = "RuntimeDefault";
const LOCALHOST: &str = "Localhost";
const UNCONFINED: &str = "Unconfined";

/// How long the parser may take; it takes a fraction of a second.
const PARSER_ENDS_WITHIN: Duration = Duration::from_secs(60);

/// The kubelet's words for a machine whose kernel does not have AppArmor, or has it switched off.
const NOT_ENABLED: &str = "AppArmor is not enabled on the host";

/// Where the kernel shows AppArmor, and what loads profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppArmorPaths {
    /// The kernel's parameter that begins with `Y` while AppArmor is on.
    pub enabled: PathBuf,
    /// AppArmor's directory in securityfs, with the list of loaded profiles.
    pub dir: PathBuf,
    /// `apparmor_parser`, which need not exist.
    pub parser: PathBuf,
    /// Whether the agent itself runs in a container. As containerd, it loads no profile then: the kernel's profiles are those of the host.
    pub in_container: bool,
}

impl Default for AppArmorPaths {
    fn default() -> Self {
        Self {
            enabled: PathBuf::from("/sys/module/apparmor/parameters/enabled"),
            dir: PathBuf::from("/sys/kernel/security/apparmor"),
            parser: PathBuf::from("/sbin/apparmor_parser"),
            in_container: false,
        }
    }
}

#[cfg(test)]
impl AppArmorPaths {
    /// All below one directory.
    pub(crate) fn below(dir: &Path) -> Self {
        Self { enabled: dir.join("enabled"), dir: dir.join("apparmor"), parser: dir.join("apparmor_parser"), in_container: false }
    }
}

/// Why a container has no profile that it must have.
#[derive(Debug, Error)]
pub(crate) enum AppArmorError {
    #[error("Cannot enforce AppArmor: {NOT_ENABLED}")]
    NotEnabled,
    #[error("AppArmor profile type {0:?} is not known to this node")]
    UnknownType(String),
    #[error("invalid empty AppArmor profile name")]
    Unnamed,
    #[error("apparmor profile not found {0}")]
    NotFound(String),
    #[error("reading the loaded AppArmor profiles")]
    Profiles(#[source] io::Error),
    #[error(
        "the default AppArmor profile cannot be loaded, because {} does not exist: install the package apparmor on the node, or load a \
         profile there by other means and name it (appArmorProfile type Localhost)", .0.display()
    )]
    NoParser(PathBuf),
    #[error(
        "the default AppArmor profile is not loaded, because this node is a container, and its kernel has the profiles of its host: load a \
         profile on the host and name it (appArmorProfile type Localhost)"
    )]
    InContainer,
    #[error("loading the default AppArmor profile: running {}", .parser.display())]
    Parser {
        parser: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("loading the default AppArmor profile: {0}")]
    Rejected(String),
    #[error("loading the default AppArmor profile: {} still ran after {} s", .0.display(), PARSER_ENDS_WITHIN.as_secs())]
    Hangs(PathBuf),
}

/// AppArmor on this machine.
#[derive(Debug)]
pub(crate) struct AppArmor {
    paths: AppArmorPaths,
    is_enabled: bool,
    /// Whether this process has loaded the default profile, so that it is the one of this version.
    has_loaded_default: Mutex<bool>,
    /// Whether the log says that containers run without a profile.
    has_noticed: AtomicBool,
}

impl AppArmor {
    /// As upstream, the machine is looked at once: an agent that starts later sees what has changed.
    pub(crate) fn detect(paths: AppArmorPaths) -> Self {
        let is_enabled = paths.dir.exists() && std::fs::read(&paths.enabled).is_ok_and(|text| text.starts_with(b"Y"));
        Self { paths, is_enabled, has_loaded_default: Mutex::default(), has_noticed: AtomicBool::default() }
    }

    /// Whether the kernel enforces profiles.
    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// The name of the profile, now loaded, under which the processes of a container run. `None` is none.
    ///
    /// # Errors
    /// When the container may not run without a profile that this node does not have.
    pub(crate) async fn profile(&self, pod: &Pod, container: &Container) -> Result<Option<String>, AppArmorError> {
        let requested = requested(pod, container);
        let is_privileged = security::privileges(container).privileged;
        match choose(requested.as_deref(), is_privileged, self.is_enabled)? {
            Choice::Unconfined => Ok(None),
            Choice::Localhost(name) if self.is_loaded(&name)? => Ok(Some(name)),
            Choice::Localhost(name) => Err(AppArmorError::NotFound(name)),
            Choice::Default => match self.fault_of_default() {
                None => self.load_default().await.map(Some),
                Some(fault) if requested.is_some() => Err(fault),
                Some(fault) => {
                    self.notice(&fault);
                    Ok(None)
                }
            },
        }
    }

    /// Why the default profile cannot be loaded here.
    fn fault_of_default(&self) -> Option<AppArmorError> {
        if self.paths.in_container {
            return Some(AppArmorError::InContainer);
        }
        (!self.paths.parser.exists()).then(|| AppArmorError::NoParser(self.paths.parser.clone()))
    }

    /// As with containerd, containers that request nothing run without the default profile where it cannot be loaded.
    fn notice(&self, fault: &AppArmorError) {
        if !self.has_noticed.swap(true, Ordering::Relaxed) {
            tracing::info!(%fault, "containers without an appArmorProfile run unconfined");
        }
    }

    /// Loads this version's default profile once, and again when somebody has removed it. Returns its name.
    async fn load_default(&self) -> Result<String, AppArmorError> {
        let name = default_profile::NAME.to_owned();
        let mut has_loaded = self.has_loaded_default.lock().await;
        if !*has_loaded || !self.is_loaded(&name)? {
            let has_abi = Path::new(default_profile::PARSER_DIR).join(default_profile::ABI).exists();
            self.load(&default_profile::text(has_abi, runtimes_host::app_armor::own_label().as_deref())).await?;
            *has_loaded = true;
        }
        Ok(name)
    }

    /// A line of the kernel's list is `name (mode)`.
    fn is_loaded(&self, name: &str) -> Result<bool, AppArmorError> {
        let profiles = std::fs::read_to_string(self.paths.dir.join("profiles")).map_err(AppArmorError::Profiles)?;
        Ok(profiles.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(" ("))))
    }

    /// Has the parser load a profile, also in the place of one of the same name.
    async fn load(&self, text: &str) -> Result<(), AppArmorError> {
        let parser = &self.paths.parser;
        let ended = timeout(PARSER_ENDS_WITHIN, run(parser, text)).await.map_err(|_| AppArmorError::Hangs(parser.clone()))?;
        let output = ended.map_err(|source| AppArmorError::Parser { parser: parser.clone(), source })?;
        if output.status.success() {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let line = errors.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
        Err(AppArmorError::Rejected(line.unwrap_or_else(|| format!("{} ended with {}", parser.display(), output.status))))
    }
}

async fn run(parser: &Path, text: &str) -> io::Result<Output> {
    let mut command = Command::new(parser);
    // No cache: the profile is compiled once in the life of this process.
    command.args(["--replace", "--skip-cache"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(text.as_bytes()).await {
            // The parser may end before it has read everything; its exit code says whether it succeeded.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
    }
    child.wait_with_output().await
}

/// What a container runs under.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Unconfined,
    Default,
    Localhost(String),
}

/// As in containerd, the default profile is not for privileged containers, also when they request it.
fn choose(requested: Option<&AppArmorProfile>, is_privileged: bool, is_enabled: bool) -> Result<Choice, AppArmorError> {
    match requested.map(|profile| profile.type_.as_str()) {
        Some(UNCONFINED) => Ok(Choice::Unconfined),
        Some(_) if !is_enabled => Err(AppArmorError::NotEnabled),
        None if !is_enabled => Ok(Choice::Unconfined),
        None | Some(RUNTIME_DEFAULT) if is_privileged => Ok(Choice::Unconfined),
        None | Some(RUNTIME_DEFAULT) => Ok(Choice::Default),
        Some(LOCALHOST) => requested.and_then(name).map(|name| Choice::Localhost(name.to_owned())).ok_or(AppArmorError::Unnamed),
        Some(other) => Err(AppArmorError::UnknownType(other.to_owned())),
    }
}

/// The name of a profile of the node.
fn name(profile: &AppArmorProfile) -> Option<&str> {
    profile.localhost_profile.as_deref().filter(|name| !name.trim().is_empty())
}

/// The profile that a Pod requests for a container: the container's own, else the annotation's, else the Pod's.
fn requested<'a>(pod: &'a Pod, container: &'a Container) -> Option<Cow<'a, AppArmorProfile>> {
    if let Some(own) = container.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref()) {
        return Some(Cow::Borrowed(own));
    }
    let annotation = pod.metadata.annotations.as_ref().and_then(|all| all.get(&format!("{ANNOTATION}{}", container.name)));
    if let Some(annotated) = annotation.and_then(|value| of_annotation(value)) {
        return Some(Cow::Owned(annotated));
    }
    pod.spec.as_ref().and_then(of_pod).map(Cow::Borrowed)
}

fn of_pod(spec: &PodSpec) -> Option<&AppArmorProfile> {
    spec.security_context.as_ref()?.app_armor_profile.as_ref()
}

/// `None` for a value that means nothing.
fn of_annotation(value: &str) -> Option<AppArmorProfile> {
    let (type_, localhost_profile) = match value {
        ANNOTATION_DEFAULT => (RUNTIME_DEFAULT, None),
        ANNOTATION_UNCONFINED => (UNCONFINED, None),
        _ => (LOCALHOST, Some(value.strip_prefix(ANNOTATION_LOCALHOST)?.to_owned())),
    };
    Some(AppArmorProfile { type_: type_.to_owned(), localhost_profile })
}

/// Why a Pod cannot be admitted, in the kubelet's words. Whether the profiles of the node are loaded shows at the start of their
/// containers, as upstream.
pub(crate) fn fault(pod: &Pod, spec: &PodSpec, is_enabled: bool) -> Option<String> {
    if !is_required(pod, spec) {
        return None;
    }
    if !is_enabled {
        return Some(NOT_ENABLED.to_owned());
    }
    let is_unnamed = |profile: &AppArmorProfile| profile.type_ == LOCALHOST && name(profile).is_none();
    let is_faulty = container::all(spec).any(|(_, container)| requested(pod, container).is_some_and(|profile| is_unnamed(&profile)));
    is_faulty.then(|| AppArmorError::Unnamed.to_string())
}

/// Whether any profile is requested. As upstream, one of the Pod counts also when none of its containers runs under it.
fn is_required(pod: &Pod, spec: &PodSpec) -> bool {
    let confines = |profile: &AppArmorProfile| profile.type_ != UNCONFINED;
    let of_container = |container: &Container| container.security_context.as_ref()?.app_armor_profile.as_ref().map(confines);
    let annotated = || {
        let mut annotations = pod.metadata.annotations.iter().flatten();
        annotations.any(|(key, value)| key.starts_with(ANNOTATION) && value != ANNOTATION_UNCONFINED)
    };
    of_pod(spec).is_some_and(confines) || container::all(spec).any(|(_, container)| of_container(container) == Some(true)) || annotated()
}

#[cfg(test)]
mod tests;
