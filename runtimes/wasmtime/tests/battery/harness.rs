//! wasmtime under the battery: scratch directories, guests, cgroups that go away afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use runtimes_battery::{Abilities, Harness, Program};
use runtimes_contract::{ContainerSpec, Content, Mount, Runtime};
use runtimes_host::cgroup::Cgroups;
use runtimes_host::helper::Helper;
use runtimes_wasmtime::{Config, WasmtimeRuntime};

use crate::guests;

/// A runtime in scratch directories.
pub struct Wasmtime {
    dir: tempfile::TempDir,
    cgroup: String,
    runtime: Arc<dyn Runtime>,
}

impl Wasmtime {
    /// With nothing in it.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let unique = dir.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned();
        let runtime = open(dir.path());
        Self { dir, cgroup: format!("skiff-test-wasmtime-{unique}"), runtime }
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A volume at `/tools` with these files, for every user to read.
    pub fn tools(&self, files: &[(&str, &[u8])]) -> Mount {
        let dir = self.dir().join("tools");
        std::fs::create_dir(&dir).unwrap();
        for (name, bytes) in files {
            std::fs::write(dir.join(name), bytes).unwrap();
        }
        Mount::new(dir, "/tools", true)
    }

    /// Content from bytes.
    pub fn content(&self, bytes: &[u8]) -> Content {
        let (module, digest) = guests::store(self.dir(), bytes);
        Content::Wasm { module, digest }
    }
}

/// The test program is its own compiler: started with this argument it serves before any test begins.
const SERVE: &str = "serve-compile";

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_TESTS: extern "C" fn() = before_tests;

/// The C library has given the arguments to the standard library by now.
extern "C" fn before_tests() {
    if std::env::args().nth(1).as_deref() == Some(SERVE) {
        runtimes_wasmtime::serve_compile();
    }
}

fn open(dir: &Path) -> Arc<dyn Runtime> {
    // A release build of the shim can be tried instead.
    let shim =
        std::env::var_os("SKIFF_SHIM_WASMTIME").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_skiff-shim-wasmtime")), PathBuf::from);
    let compiler = Helper::new(std::env::current_exe().unwrap(), &[SERVE]);
    Arc::new(WasmtimeRuntime::new(Config { state_dir: dir.join("state"), cache_dir: dir.join("cache"), shim, compiler }).unwrap())
}

impl Drop for Wasmtime {
    fn drop(&mut self) {
        // Also when a test has failed: no process continues to run.
        Cgroups::detect().and_then(|cgroups| cgroups.group(&self.cgroup)).and_then(|group| group.remove_tree()).unwrap();
    }
}

impl Harness for Wasmtime {
    fn runtime(&self) -> Arc<dyn Runtime> {
        self.runtime.clone()
    }

    fn reopened(&self) -> Arc<dyn Runtime> {
        open(self.dir())
    }

    fn scratch(&self) -> &Path {
        self.dir()
    }

    fn cgroup(&self, id: &str) -> String {
        format!("{}/{id}", self.cgroup)
    }

    fn program(&self, program: Program) -> (Content, Vec<String>) {
        let bytes = match program {
            Program::Hello => guests::module("hello"),
            Program::Echo => guests::module("echo"),
            Program::ExitWith(code) => guests::exit_with(code),
            Program::Sleep => guests::module("sleep"),
            Program::Spin => guests::module("spin"),
            Program::Ticks => guests::module("ticks"),
            Program::LongLine => guests::module("long-line"),
            Program::Hog => guests::module("hog"),
            Program::Broken => guests::module("bad-import"),
        };
        (self.content(&bytes), vec!["guest.wasm".into()])
    }

    fn abilities(&self) -> Abilities {
        Abilities { real: true, terminated_code: 143, hog_is_killed: false }
    }

    fn further(&self, spec: &mut ContainerSpec) -> Vec<String> {
        let tools = self.tools(&[("inside.wasm", &guests::module("inside"))]);
        spec.mounts.push(tools);
        vec!["/tools/inside.wasm".into()]
    }
}
