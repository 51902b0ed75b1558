//! The program that an exec names: a file of the container, looked up as its guest would.
//!
//! What is compiled is a copy, hashed while it is made, so that nobody can change what a name in the compile cache stands for. A file whose
//! code is in the cache is not copied, and one that has not changed is not read. Tenants cannot hold up each other: of each, one program is
//! read and one compiled at a time. A compilation goes on when its caller has given up: a probe tries again.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use parking_lot::Mutex;
use runtimes_contract::{ContainerSpec, Mount, RuntimeError, TENANT_LABEL, User};
use runtimes_host::files::open_in_root;
use runtimes_host::{Keyed, blocking};

use crate::builtin::{BUILTIN, Builtin};
use crate::cache::{Artifact, Cache, Identity, StoredModule, hashed};
use crate::compile::MODULE_LEN_MAX;
use crate::innermost::innermost;
use crate::settings::CodeSettings;
use crate::user::{ids, node_ids};

/// Where a program is looked up whose name has no slash, if the container has no `PATH`.
const DEFAULT_PATH: &str = "/";
/// The directories of a `PATH` that are looked at.
const PATH_DIRS_MAX: usize = 64;
/// The first bytes of a program.
const MAGIC: &[u8] = b"\0asm";
/// The digests that are remembered.
const DIGESTS_MAX: usize = 4_096;
/// The programs of one tenant that wait for the compiler.
const WAITING_MAX: usize = 16;

/// Digests by the state of the file.
type Digests = Arc<Mutex<HashMap<Identity, String>>>;
/// One of each tenant at a time.
type TenantLocks = Keyed<String, tokio::sync::Mutex<()>>;

/// The programs of containers.
pub(super) struct Programs {
    cache: Cache,
    reading: TenantLocks,
    compiling: TenantLocks,
    digests: Digests,
}

impl Programs {
    pub(super) fn new(cache: Cache) -> Self {
        Self { cache, reading: TenantLocks::default(), compiling: TenantLocks::default(), digests: Digests::default() }
    }

    /// The program that the arguments name: one of the container, compiled now if necessary, or one of the shim's own if the container has
    /// no WebAssembly of the name.
    pub(super) async fn runnable(&self, spec: &ContainerSpec, args: &[String]) -> Result<Runnable, RuntimeError> {
        let builtin = args.first().and_then(|name| name.parse().ok());
        let digest = match (self.digest(spec, args).await, builtin) {
            (Err(RuntimeError::Start(_)), Some(builtin)) => return Ok(Runnable::Builtin(builtin)),
            (digest, _) => digest?,
        };
        self.artifact(spec, args, digest).await.map(Runnable::Guest)
    }

    /// `sha256:…` of the program's file.
    async fn digest(&self, spec: &ContainerSpec, args: &[String]) -> Result<String, RuntimeError> {
        let reading = self.reading.get(tenant_of(spec), Default::default).lock_owned().await;
        let (spec, args, digests) = (spec.clone(), args.to_vec(), self.digests.clone());
        blocking(move || {
            // Until it has been read, also when the caller has given up.
            let _reading = reading;
            find(&spec, &args)?.digest(&digests)
        })
        .await
    }

    /// The machine code of the program with this digest.
    async fn artifact(&self, spec: &ContainerSpec, args: &[String], digest: String) -> Result<Artifact, RuntimeError> {
        let module = StoredModule { file: PathBuf::new(), digest, settings: CodeSettings::of(spec) };
        if let Some(artifact) = self.cache.compiled(&module).await? {
            return Ok(artifact);
        }
        let lock = self.compiling.get(tenant_of(spec), Default::default);
        if Arc::strong_count(&lock) > WAITING_MAX {
            return Err(RuntimeError::Start(format!(
                "{WAITING_MAX} programs of the namespace wait for the compiler already; try again later"
            )));
        }
        let (cache, owned, wanted) = (self.cache.clone(), spec.clone(), args.to_vec());
        let compilation = async move {
            let _lock = lock.lock_owned().await;
            // It may have been compiled meanwhile.
            if let Some(artifact) = cache.compiled(&module).await? {
                return Ok(artifact);
            }
            let (copy, file) = cache.module_file()?;
            let digest = blocking(move || find(&owned, &wanted)?.read(Some(file))).await?;
            cache.artifact(&StoredModule { file: copy.path().to_owned(), digest, ..module }).await
        };
        tokio::spawn(compilation).await.map_err(|error| RuntimeError::io("compiling a program")(error.into()))?
    }
}

fn tenant_of(spec: &ContainerSpec) -> &str {
    spec.labels.get(TENANT_LABEL).map(String::as_str).unwrap_or_default()
}

/// What runs in a container beside its own guest.
pub(super) enum Runnable {
    Guest(Artifact),
    Builtin(Builtin),
}

impl Runnable {
    /// What the shim has to know of it.
    pub(super) fn shim_args(&self) -> Vec<OsString> {
        match self {
            Self::Guest(artifact) => artifact.shim_args().into(),
            Self::Builtin(program) => vec![BUILTIN.into(), program.to_string().into()],
        }
    }
}

/// A file that may be run.
struct Program {
    file: File,
    state: Metadata,
    path: PathBuf,
    /// As the arguments have it.
    name: String,
}

/// Looks the program up that the arguments name. Blocks.
fn find(spec: &ContainerSpec, args: &[String]) -> Result<Program, RuntimeError> {
    let name = args.first().map(String::as_str).unwrap_or_default();
    if name.is_empty() {
        return Err(complaint(name, "no command"));
    }
    let mut denied = false;
    for path in candidates(spec, name) {
        let opening = || format!("opening {}", path.display());
        let (mount, file) = match open_in_mounts(spec, &path) {
            Ok(opened) => opened,
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ENAMETOOLONG) => continue,
            Err(errno) => return Err(RuntimeError::io(opening())(errno.into())),
        };
        let state = file.metadata().map_err(RuntimeError::io(opening()))?;
        if !state.is_file() || !may_read(&user_of(spec, mount)?, &state) {
            denied = true;
            continue;
        }
        // Only now: opening a device may have an effect.
        let file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(RuntimeError::io(opening()))?;
        return Ok(Program { file, state, name: name.to_owned(), path });
    }
    Err(complaint(
        name,
        match (denied, name.contains('/')) {
            (true, _) => "permission denied",
            (false, true) => "no such file or directory",
            (false, false) => "executable file not found in $PATH",
        },
    ))
}

fn complaint(name: &str, what: &str) -> RuntimeError {
    RuntimeError::Start(format!("exec: {name:?}: {what}"))
}

/// The paths that a name may stand for.
fn candidates(spec: &ContainerSpec, name: &str) -> Vec<PathBuf> {
    if name.contains('/') {
        return vec![spec.working_dir.join(name)];
    }
    let path = spec.env.iter().find(|(key, _)| key == "PATH").map_or(DEFAULT_PATH, |(_, value)| value);
    path.split(':').take(PATH_DIRS_MAX).filter(|dir| dir.starts_with('/')).map(|dir| Path::new(dir).join(name)).collect()
}

/// Looks a file up in the innermost mount that has the path. Links and `..` end at the root of that mount.
fn open_in_mounts<'a>(spec: &'a ContainerSpec, path: &Path) -> nix::Result<(&'a Mount, File)> {
    let (mount, below) = innermost(&spec.mounts, |mount| &mount.target, path).ok_or(Errno::ENOENT)?;
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let source = open(&mount.source, flags | OFlag::O_NOFOLLOW, Mode::empty())?;
    let file = if below.as_os_str().is_empty() { source } else { open_in_root(source, below, flags)? };
    Ok((mount, file.into()))
}

/// The container's user as the owners of the files of a mount are written on the node.
fn user_of(spec: &ContainerSpec, mount: &Mount) -> Result<User, RuntimeError> {
    if mount.ids_mapped {
        return node_ids(spec);
    }
    let (uid, gid) = ids(&spec.user);
    Ok(User { uid: Some(uid), gid: Some(gid), groups: spec.user.groups.clone() })
}

/// Whether a user may read a file, by the file's mode.
fn may_read(user: &User, file: &Metadata) -> bool {
    let bit = if Some(file.uid()) == user.uid {
        0o400
    } else if Some(file.gid()) == user.gid || user.groups.contains(&file.gid()) {
        0o040
    } else {
        0o004
    };
    file.mode() & bit != 0
}

impl Program {
    /// `sha256:…` of the file, which is read only if it has changed. Blocks.
    fn digest(self, digests: &Digests) -> Result<String, RuntimeError> {
        let state = Identity::of(&self.state);
        if let Some(digest) = digests.lock().get(&state) {
            return Ok(digest.clone());
        }
        let digest = self.read(None)?;
        let mut digests = digests.lock();
        if digests.len() >= DIGESTS_MAX {
            digests.clear();
        }
        digests.insert(state, digest.clone());
        Ok(digest)
    }

    /// Reads the file, and copies it if a file is given. Returns `sha256:…` of what was read. Blocks.
    fn read(mut self, copy: Option<File>) -> Result<String, RuntimeError> {
        let too_large = format!("the file has more than {MODULE_LEN_MAX} bytes");
        // The file may also grow while it is read.
        if self.state.len() > MODULE_LEN_MAX {
            return Err(complaint(&self.name, &too_large));
        }
        let reading = format!("reading {}", self.path.display());
        match read_program(&mut self.file, copy).map_err(RuntimeError::io(reading))? {
            Contents::Program(digest) => Ok(digest),
            Contents::TooLarge => Err(complaint(&self.name, &too_large)),
            Contents::Other => Err(complaint(&self.name, "exec format error")),
        }
    }
}

enum Contents {
    /// `sha256:…`.
    Program(String),
    TooLarge,
    /// No WebAssembly.
    Other,
}

fn read_program(from: &mut File, to: Option<File>) -> io::Result<Contents> {
    let mut magic = Vec::new();
    from.take(MAGIC.len() as u64).read_to_end(&mut magic)?;
    if magic != MAGIC {
        return Ok(Contents::Other);
    }
    let (len, sha256) = hashed(Copying { from: MAGIC.chain(from).take(MODULE_LEN_MAX + 1), to })?;
    Ok(if len > MODULE_LEN_MAX { Contents::TooLarge } else { Contents::Program(format!("sha256:{sha256}")) })
}

/// Copies what is read.
struct Copying<R> {
    from: R,
    to: Option<File>,
}

impl<R: Read> Read for Copying<R> {
    fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
        let len = self.from.read(part)?;
        if let (Some(to), Some(bytes)) = (&mut self.to, part.get(..len)) {
            to.write_all(bytes)?;
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use runtimes_contract::Mount;

    use super::*;

    struct Container {
        dir: tempfile::TempDir,
        spec: ContainerSpec,
        digests: Digests,
    }

    /// An image with a root, and a volume at `/data`.
    fn container() -> Container {
        let dir = tempfile::tempdir().unwrap();
        let (root, data) = (dir.path().join("root"), dir.path().join("data"));
        for dir in [root.join("bin"), root.join("data"), data.clone()] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let files = [
            ("root/bin/tool.wasm", "\0asm tool"),
            ("root/data/hidden", "\0asm hidden"),
            ("data/own", "\0asm own"),
            ("secret", "\0asm secret"),
        ];
        for (path, text) in files {
            std::fs::write(dir.path().join(path), text).unwrap();
            std::fs::set_permissions(dir.path().join(path), std::fs::Permissions::from_mode(0o644)).unwrap();
        }
        let mounts = vec![Mount::new(&root, "/", true), Mount::new(&data, "/data", false)];
        let spec = ContainerSpec { mounts, working_dir: "/bin".into(), ..runtimes_battery::plain_spec("c") };
        Container { dir, spec, digests: Digests::default() }
    }

    impl Container {
        /// What the program has in it, or the message.
        fn program(&self, name: &str) -> String {
            let copy = self.dir.path().join("copy");
            let found = || find(&self.spec, &[name.to_owned()]);
            match found().and_then(|program| program.read(Some(File::create(&copy).unwrap()))) {
                Ok(digest) => {
                    let text = std::fs::read_to_string(&copy).unwrap();
                    assert_eq!(digest, format!("sha256:{}", hashed(text.as_bytes()).unwrap().1));
                    assert_eq!(digest, found().unwrap().digest(&self.digests).unwrap());
                    text.strip_prefix("\0asm ").unwrap().to_owned()
                }
                Err(error) => error.to_string(),
            }
        }
    }

    #[test]
    fn a_program_is_looked_up_as_the_guest_would() {
        let mut container = container();
        for (name, text) in [("/bin/tool.wasm", "tool"), ("./tool.wasm", "tool"), ("../bin/tool.wasm", "tool"), ("/data/own", "own")] {
            assert_eq!(container.program(name), text, "{name}");
        }
        assert_eq!(container.program("tool.wasm"), r#"exec: "tool.wasm": executable file not found in $PATH"#);
        container.spec.env = vec![("PATH".to_owned(), "relative:/data:/bin".to_owned())];
        assert_eq!(container.program("tool.wasm"), "tool");
        assert_eq!(container.program("/data/hidden"), r#"exec: "/data/hidden": no such file or directory"#);
        assert_eq!(container.program("/bin"), r#"exec: "/bin": permission denied"#);
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let container = container();
        let own = container.dir.path().join("data/own");
        for text in ["first", "second", "another"] {
            std::fs::write(&own, format!("\0asm {text}")).unwrap();
            assert_eq!(container.program("/data/own"), text);
        }
        std::fs::write(&own, "#!/bin/sh").unwrap();
        assert_eq!(container.program("/data/own"), r#"exec: "/data/own": exec format error"#);
        let file = File::options().write(true).open(&own).unwrap();
        file.set_len(MODULE_LEN_MAX + 1).unwrap();
        assert_eq!(container.program("/data/own"), format!("exec: \"/data/own\": the file has more than {MODULE_LEN_MAX} bytes"));
    }

    #[test]
    fn no_link_leads_to_the_node() {
        let container = container();
        let secret = container.dir.path().join("secret");
        symlink(&secret, container.dir.path().join("data/absolute")).unwrap();
        symlink("../secret", container.dir.path().join("data/relative")).unwrap();
        nix::unistd::mkfifo(&container.dir.path().join("data/pipe"), Mode::S_IRWXU).unwrap();
        // A number that no driver has: opening it fails.
        let kind = nix::sys::stat::SFlag::S_IFCHR;
        nix::sys::stat::mknod(&container.dir.path().join("data/device"), kind, Mode::all(), nix::sys::stat::makedev(60, 1)).unwrap();
        for name in ["/data/absolute", "/data/relative", "/../secret", "/data/../../secret", &secret.display().to_string()] {
            let message = container.program(name);
            assert!(message.ends_with("no such file or directory"), "{name}: {message}");
        }
        for name in ["/data/pipe", "/data/device"] {
            assert_eq!(container.program(name), format!("exec: {name:?}: permission denied"));
        }
    }

    #[test]
    fn a_file_that_the_containers_user_cannot_read_is_no_program() {
        let mut container = container();
        let own = container.dir.path().join("data/own");
        std::os::unix::fs::chown(&own, Some(7), Some(5)).unwrap();
        let cases = [(0o604, 1_000, 6, true), (0o640, 1_000, 6, false), (0o640, 1_000, 5, true), (0o400, 7, 6, true), (0o044, 7, 5, false)];
        for (mode, uid, gid, readable) in cases {
            std::fs::set_permissions(&own, std::fs::Permissions::from_mode(mode)).unwrap();
            container.spec.user = User { uid: Some(uid), gid: Some(gid), groups: Vec::new() };
            let wanted = if readable { "own" } else { r#"exec: "/data/own": permission denied"# };
            assert_eq!(container.program("/data/own"), wanted, "{mode:o} {uid} {gid}");
        }
    }
}
