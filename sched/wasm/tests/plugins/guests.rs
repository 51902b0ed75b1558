//! Guests from WAT: nothing to install. The offsets are those of the canonical ABI for `wit/scheduler.wit`.

use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The bodies of a guest's functions; `None` leaves the export out.
#[derive(Clone)]
pub struct Guest<'a> {
    /// With the arguments' pointer and length as parameters.
    pub init: &'a str,
    /// With the pointer to Pod and nodes as `$args`.
    pub filter: Option<&'a str>,
    /// The same.
    pub score: Option<&'a str>,
    /// With `$ptr` and `$len` of the candidates.
    pub permit: Option<&'a str>,
    /// More lines of the module.
    pub more: &'a str,
    /// More lines of the world.
    pub world: &'a str,
}

/// Returns the settings of scope `node` without normalization: they are at 16, behind a zero byte for `ok`.
pub const NODE_SCOPE: &str = "(i32.const 16)";
/// The same of scope `pod`.
pub const POD_SCOPE: &str = "(i32.store8 (i32.const 20) (i32.const 1)) (i32.const 16)";
/// Scope `node`, the highest score is the worst one.
pub const REVERSED: &str = "(i32.store8 (i32.const 21) (i32.const 2)) (i32.const 16)";
/// The score of a node is the number of its labels.
pub const SCORE_LABELS: &str = "(local $n i32) (local $out i32) (local $node i32)
    (local.set $n (i32.load offset=116 (local.get $args)))
    (local.set $node (i32.load offset=112 (local.get $args)))
    (i32.store (i32.const 32) (local.tee $out (call $alloc (i32.mul (local.get $n) (i32.const 8)))))
    (i32.store (i32.const 36) (local.get $n))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $n)))
      (i64.store (local.get $out) (i64.extend_i32_u (i32.load offset=12 (local.get $node))))
      (local.set $out (i32.add (local.get $out) (i32.const 8)))
      (local.set $node (i32.add (local.get $node) (i32.const 104)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br $next)))
    (i32.const 32)";
/// Rules every node out, by the Pod's name: the list of reasons is the string in the Pod.
pub const REJECT_BY_NAME: &str = "(local $n i32) (local $out i32)
    (local.set $n (i32.load offset=116 (local.get $args)))
    (i32.store (i32.const 32) (local.tee $out (call $alloc (i32.mul (local.get $n) (i32.const 12)))))
    (i32.store (i32.const 36) (local.get $n))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $n)))
      (i32.store (local.get $out) (i32.const 1))
      (i32.store offset=4 (local.get $out) (i32.add (local.get $args) (i32.const 8)))
      (i32.store offset=8 (local.get $out) (i32.const 1))
      (local.set $out (i32.add (local.get $out) (i32.const 12)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br $next)))
    (i32.const 32)";
/// Lets two candidates go, and one wait for 7 seconds.
pub const PERMIT_PAIRS: &str = "(local $n i32) (local $out i32)
    (local.set $n (local.get $len))
    (i32.store (i32.const 32) (local.tee $out (call $alloc (i32.mul (local.get $n) (i32.const 12)))))
    (i32.store (i32.const 36) (local.get $n))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $n)))
      (if (i32.lt_u (local.get $len) (i32.const 2)) (then
        (i32.store (local.get $out) (i32.const 2))
        (i32.store offset=4 (local.get $out) (i32.const 7))))
      (local.set $out (i32.add (local.get $out) (i32.const 12)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br $next)))
    (i32.const 32)";
/// Does not end.
pub const SPIN: &str = "(loop $forever (br $forever)) (unreachable)";
/// Fills its memory over and over: much time for few instructions.
pub const FILL: &str = "(drop (memory.grow (i32.const 900)))
    (loop $forever (memory.fill (i32.const 65536) (i32.const 1) (i32.const 58000000)) (br $forever)) (unreachable)";
/// Takes memory until there is none.
pub const BOMB: &str = "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) (unreachable)";

impl Default for Guest<'_> {
    fn default() -> Self {
        Self { init: NODE_SCOPE, filter: None, score: None, permit: None, more: "", world: "" }
    }
}

impl Guest<'_> {
    /// The bytes of the component.
    pub fn component(&self) -> Vec<u8> {
        let interfaces = [("filter", self.filter), ("score", self.score), ("permit", self.permit)];
        let exports: String = interfaces
            .iter()
            .filter(|(_, body)| body.is_some())
            .map(|(name, _)| format!("export skiff:scheduler/{name}@0.1.0;\n"))
            .collect();
        let world = format!(
            "package test:guest;\nworld guest {{\nimport skiff:scheduler/host@0.1.0;\nexport skiff:scheduler/plugin@0.1.0;\n{exports}{}\n}}\n",
            self.world
        );
        encode(self.core(), &world)
    }

    /// The core module with the canonical names.
    fn core(&self) -> Vec<u8> {
        let on_nodes = |name: &str, body: Option<&str>| {
            body.map_or(String::new(), |body| {
                format!("(func (export \"skiff:scheduler/{name}@0.1.0#{name}\") (param $args i32) (result i32) {body})\n(func (export \"cabi_post_skiff:scheduler/{name}@0.1.0#{name}\") (param i32) (global.set $heap (i32.const 4096)))")
            })
        };
        let permit = self.permit.map_or(String::new(), |body| {
            format!("(func (export \"skiff:scheduler/permit@0.1.0#permit\") (param $ptr i32) (param $len i32) (result i32) {body})")
        });
        let (filter, score) = (on_nodes("filter", self.filter), on_nodes("score", self.score));
        let text = format!(
            "(module
              (import \"skiff:scheduler/host@0.1.0\" \"log\" (func $log (param i32 i32 i32)))
              {more}
              (memory (export \"memory\") 1)
              (global $heap (mut i32) (i32.const 4096))
              (data (i32.const 256) \"out of luck\")
              (func $alloc (param $len i32) (result i32) (local $at i32)
                (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
                (global.set $heap (i32.add (local.get $at) (local.get $len)))
                (block $enough (loop $more
                  (br_if $enough (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
                  (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))
                  (unreachable)))
                (local.get $at))
              (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) (call $alloc (local.get 3)))
              (func (export \"skiff:scheduler/plugin@0.1.0#init\") (param i32 i32) (result i32) {init})
              {filter} {score} {permit})",
            more = self.more,
            init = self.init,
        );
        wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }
}

/// A component of a core module for a world.
pub fn encode(mut core: Vec<u8>, world: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    // The stories of the whole project use these guests too.
    let dirs = ["wit", "../sched/wasm/wit"].map(|dir| Path::new(env!("CARGO_MANIFEST_DIR")).join(dir));
    resolve.push_dir(dirs.iter().find(|dir| dir.exists()).unwrap()).unwrap();
    for package in WASI {
        resolve.push_str("wasi.wit", package).unwrap();
    }
    let package = resolve.push_str("world.wit", world).unwrap();
    let world = resolve.select_world(&[package], None).unwrap();
    embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&core).unwrap().validate(true).encode().unwrap()
}

/// The parts of WASI and of others that guests import.
const WASI: [&str; 5] = [
    "package wasi:io@0.2.6;\ninterface streams { resource output-stream { check-write: func() -> result<u64>; flush: func() -> result; } }",
    "package wasi:cli@0.2.6;\ninterface stderr { use wasi:io/streams@0.2.6.{output-stream}; get-stderr: func() -> output-stream; }",
    "package wasi:random@0.2.6;\ninterface random { get-random-u64: func() -> u64; }",
    "package wasi:sockets@0.2.6;\ninterface tcp { connect: func() -> u32; }",
    "package other:things@1.0.0;\ninterface secrets { read: func() -> u32; }",
];
