use serde_json::json;

use super::*;

fn shape_of(manifest: &serde_json::Value, config: &serde_json::Value) -> Result<(Shape, ImageConfig), String> {
    let text = |error: ManifestError| error.to_string();
    shape(&parse(manifest.to_string().as_bytes()).map_err(text)?, config.to_string().as_bytes()).map_err(text)
}

fn oci(layers: &[&str]) -> serde_json::Value {
    let layers: Vec<_> = layers
        .iter()
        .map(|digest| json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest, "size": 1}))
        .collect();
    json!({"config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:c", "size": 1}, "layers": layers})
}

#[test]
fn every_wasm_artifact_layer_type_is_known() {
    for media_type in WASM_LAYERS {
        let manifest = json!({"config": {"mediaType": "application/vnd.wasm.config.v0+json", "digest": "sha256:c"}, "layers": [{"mediaType": media_type, "digest": "sha256:m"}]});
        let (shape, _) = shape_of(&manifest, &json!({"architecture": "wasm", "os": "wasip2"})).expect(media_type);
        assert_eq!(shape, Shape::Module { layer: "sha256:m".to_owned() });
    }
}

#[test]
fn a_linux_image_says_how_it_is_run() {
    let config = json!({"os": "linux", "architecture": go_architecture(), "rootfs": {"diff_ids": ["sha256:d"]},
        "config": {"Entrypoint": ["/bin/sh"], "Cmd": ["-c", "true"], "Env": ["A=b=c", "D="], "WorkingDir": "/w", "User": "1:2"}});
    let (shape, config) = shape_of(&oci(&["sha256:l"]), &config).expect("runs");
    assert_eq!(shape, Shape::Layers { layers: vec![("sha256:l".to_owned(), "sha256:d".to_owned())], wasm_file: None });
    assert_eq!(config.env, [("A".to_owned(), "b=c".to_owned()), ("D".to_owned(), String::new())]);
    assert_eq!((config.entrypoint, config.user.as_str()), (vec!["/bin/sh".to_owned()], "1:2"));
}

#[test]
fn a_linux_style_image_with_a_wasm_entrypoint_is_wasm() {
    for (os, architecture, entrypoint, wanted) in [
        ("linux", go_architecture(), "/app/x.wasm", Some("app/x.wasm")),
        ("wasi", "wasm", "./run", Some("w/run")),
        ("linux", go_architecture(), "/bin/x", None),
    ] {
        let config = json!({"os": os, "architecture": architecture, "rootfs": {"diff_ids": ["sha256:d"]}, "config": {"Entrypoint": [entrypoint], "WorkingDir": "/w"}});
        let (shape, _) = shape_of(&oci(&["sha256:l"]), &config).expect("runs");
        let Shape::Layers { wasm_file, .. } = shape else { panic!("layers") };
        assert_eq!(wasm_file.as_deref(), wanted);
    }
}

#[test]
fn the_reason_why_an_image_cannot_run_is_reported() {
    let chart = json!({"config": {"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": "sha256:c"}, "layers": []});
    let cases = [
        (shape_of(&chart, &json!({})), "neither a WASM artifact nor a Linux image"),
        (
            shape_of(&oci(&["sha256:l"]), &json!({"os": "windows", "architecture": "amd64", "rootfs": {"diff_ids": ["sha256:d"]}})),
            "windows/amd64",
        ),
        (shape_of(&oci(&["sha256:l"]), &json!({"os": "linux", "architecture": go_architecture()})), "names 0 layers"),
    ];
    for (result, wanted) in cases {
        let error = result.expect_err(wanted);
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn an_index_yields_this_machines_entry_or_the_wasm_one() {
    let entry = |os: &str, architecture: &str| Descriptor {
        media_type: String::new(),
        digest: format!("{os}/{architecture}"),
        size: 0,
        platform: Some(Platform { os: os.to_owned(), architecture: architecture.to_owned() }),
    };
    let here = entry("linux", go_architecture());
    let chosen = |entries: &[Descriptor]| choose(entries).map(|e| e.digest.clone()).map_err(|error| error.to_string());
    assert_eq!(chosen(&[entry("wasip2", "wasm"), here.clone()]), Ok(here.digest));
    assert_eq!(chosen(&[entry("linux", "s390x"), entry("wasip2", "wasm")]), Ok("wasip2/wasm".to_owned()));
    assert!(chosen(&[entry("linux", "s390x")]).is_err());
}
