use super::*;
use crate::settings::CodeSettings;

fn question(purpose: Purpose) -> Question {
    Question { purpose, optimization: Optimization::Full, settings: CodeSettings::default() }
}

fn complaint(bytes: &[u8]) -> String {
    match compile(&engine(&question(Purpose::Container), abi_of(bytes)).unwrap(), abi_of(bytes), Purpose::Container, bytes) {
        Ok(compiled) => format!("fine: {}", compiled.kind),
        Err(complaint) => complaint.to_string(),
    }
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

#[test]
fn the_kind_is_found_and_faults_are_named() {
    let start = r#"(func (export "_start"))"#;
    let cases = [
        (wat(&format!("(module {start})")), "fine: module"),
        (wat(r#"(module (func (export "_start") (param i32)))"#), "_start is not a function without parameters"),
        (wat(r#"(module (memory (export "_start") 1))"#), "_start is not a function"),
        (wat(&format!(r#"(module (import "wasi_snapshot_preview1" "fly" (func)) {start})"#)), "`wasi_snapshot_preview1::fly`"),
        (wat(&format!(r#"(module (import "wasi_unstable" "proc_exit" (func (param i32))) {start})"#)), "`wasi_unstable::proc_exit`"),
        (wat(r#"(component (import "wasi:filesystem/teleport@0.2.0" (instance (export "go" (func)))))"#), "wasi:filesystem/teleport@0.2.0"),
        (b"\x7fELF\x02\x01\x01\0".to_vec(), "machine code (an ELF file), not a WebAssembly binary"),
        (b"MZ\x90\0".to_vec(), "not a WebAssembly binary: it starts with [4d, 5a, 90, 00]"),
    ];
    for (bytes, wanted) in cases {
        let got = complaint(&bytes);
        assert!(got.contains(wanted), "{wanted}: {got}");
    }
}

#[test]
fn a_plugin_is_a_component() {
    let plugin = |bytes: &[u8]| match compile(&engine(&question(Purpose::Plugin), Abi::Sync).unwrap(), Abi::Sync, Purpose::Plugin, bytes) {
        Ok(compiled) => format!("fine: {}", compiled.kind),
        Err(complaint) => complaint.to_string(),
    };
    assert_eq!(plugin(&wat("(component)")), "fine: plugin");
    assert!(plugin(&wat("(module)")).starts_with("a core WebAssembly module, not a component"));
    assert!(plugin(b"MZ").starts_with("not a WebAssembly binary"));
    assert!(plugin(b"\0asm\x0d\0\x01\0\xff").starts_with("invalid WebAssembly"));
}

#[test]
fn plugins_have_settings_of_their_own() {
    let [container, plugin] =
        [Purpose::Container, Purpose::Plugin].map(|purpose| fingerprint(&engine(&question(purpose), Abi::Sync).unwrap()));
    assert_ne!(container, plugin);
}

#[test]
fn the_fingerprint_is_the_same_in_every_engine_of_ours() {
    let [one, two] =
        [Purpose::Container; 2].map(|purpose| engine(&question(purpose), Abi::Sync).unwrap()).map(|engine| fingerprint(&engine));
    assert_eq!((one.len(), &one), (64, &two));
    let mut other = config(&CodeSettings::default(), Abi::Sync);
    other.epoch_interruption(false);
    assert_ne!(fingerprint(&Engine::new(&other).unwrap()), one);
}

/// The shim's engine has the usual settings.
#[test]
fn code_without_optimization_has_a_key_of_its_own_and_runs_in_the_same_engine() {
    let [quick, full] = [Optimization::None, Optimization::Full].map(|optimization| {
        engine(&Question { purpose: Purpose::Container, optimization, settings: CodeSettings::default() }, Abi::Sync).unwrap()
    });
    assert_ne!(fingerprint(&quick), fingerprint(&full));
    let shim = Engine::new(&config(&CodeSettings::default(), Abi::Sync)).unwrap();
    let bytes = wat(r#"(module (func (export "_start")) (func (export "twice") (param i32) (result i32)
        (i32.add (local.get 0) (local.get 0))))"#);
    let codes = [&quick, &full].map(|engine| compile(engine, Abi::Sync, Purpose::Container, &bytes).unwrap().code);
    assert_ne!(codes[0], codes[1]);
    for code in codes {
        // SAFETY: the code was made by these engines just now.
        let module = unsafe { Module::deserialize(&shim, &code) }.unwrap();
        let mut store = wasmtime::Store::new(&shim, ());
        store.set_epoch_deadline(1);
        let instance = wasmtime::Instance::new(&mut store, &module, &[]).unwrap();
        let twice = instance.get_typed_func::<i32, i32>(&mut store, "twice").unwrap();
        assert_eq!(twice.call(&mut store, 21).unwrap(), 42);
        // The same interruption.
        shim.increment_epoch();
        assert!(twice.call(&mut store, 21).is_err());
    }
}

#[test]
fn an_error_about_a_module_is_one_short_line_without_control_characters() {
    let text = format!("first:\n\n   {}second\x1b[2J\r\t\u{9b}", "\0".repeat(700));
    assert_eq!(one_line(&text, ERROR_LEN_MAX), "first: second[2J");
    assert_eq!(one_line("", ERROR_LEN_MAX), "");
    let all = "鑿".repeat(ERROR_LEN_MAX);
    assert_eq!(one_line(&all, ERROR_LEN_MAX), all);
    assert_eq!(one_line(&format!("{all}鑿"), ERROR_LEN_MAX), format!("{all}…"));
    let import = format!(r#"(module (import "\1b[2J{}" "x" (func)) (func (export "_start")))"#, "x".repeat(90_000));
    let complaint = complaint(&wat(&import));
    assert!(complaint.chars().count() < ANSWER_LEN_MAX && complaint.contains("; offered are "), "{complaint}");
    assert!(!complaint.chars().any(char::is_control), "{complaint:?}");
}
