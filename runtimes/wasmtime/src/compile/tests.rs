use super::*;

fn complaint(bytes: &[u8]) -> String {
    match compile(&engine(Purpose::Container).unwrap(), Purpose::Container, bytes) {
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
        (b"MZ\x90\0".to_vec(), "not a WebAssembly binary: it starts with [4d, 5a, 90, 00]"),
    ];
    for (bytes, wanted) in cases {
        let got = complaint(&bytes);
        assert!(got.contains(wanted), "{wanted}: {got}");
    }
}

#[test]
fn a_plugin_is_a_component() {
    let plugin = |bytes: &[u8]| match compile(&engine(Purpose::Plugin).unwrap(), Purpose::Plugin, bytes) {
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
    let [container, plugin] = [Purpose::Container, Purpose::Plugin].map(|purpose| fingerprint(&engine(purpose).unwrap()));
    assert_ne!(container, plugin);
}

#[test]
fn the_fingerprint_is_the_same_in_every_engine_of_ours() {
    let [one, two] = [Purpose::Container; 2].map(|purpose| engine(purpose).unwrap()).map(|engine| fingerprint(&engine));
    assert_eq!((one.len(), &one), (64, &two));
    let mut other = crate::settings::config();
    other.epoch_interruption(false);
    assert_ne!(fingerprint(&Engine::new(&other).unwrap()), one);
}
