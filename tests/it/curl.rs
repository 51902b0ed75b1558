//! The story of Debian 12's curl, which drops an HTTP/2 answer if a reset of the stream follows. Every rejection must
//! reach it, whatever body it was sending, and answers for curl are indented.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::{Cluster, Net};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Bodies of a request: small, more than a window of HTTP/2, and more than any request may have.
const BODY_LENS: [usize; 3] = [1, 300_000, 5 << 20];

#[test]
fn curl_gets_helpful_errors() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server"]);
    cluster.start();
    let curl = Curl::with_credentials_of(&cluster);
    // Over HTTP/1.1 a server closes the connection if it does not read a body. A client that goes on sending may miss
    // the answer.
    for (protocol, lens) in [("--http1.1", &BODY_LENS[..2]), ("--http2", &BODY_LENS[..])] {
        for &len in lens {
            let body = curl.body(len);
            for expect in ["Expect:", "Expect: 100-continue"] {
                let answers = |args: &[&str], path: &str, code: &str, message: &str| {
                    let all = [&[protocol, "-H", expect, "--data-binary", &body], args].concat();
                    let (status, answer) = curl.ask(&all, path);
                    assert_eq!(status, code, "{protocol} {len} {expect} {path}: {answer}");
                    assert!(answer["message"].as_str().is_some_and(|text| text.contains(message)), "{answer}");
                };
                answers(&[], CONFIG_MAPS, "403", "cannot create resource");
                answers(&["-H", "Authorization: Bearer nonsense"], CONFIG_MAPS, "401", "Unauthorized");
                let admin = curl.admin();
                answers(&admin, "/apis/nothing/v1/x", "404", "could not find the requested resource");
                answers(&admin, &format!("{CONFIG_MAPS}/x"), "405", "does not allow this method");
                answers(&[&admin[..], &["-X", "PUT"]].concat(), "/api", "405", "does not allow this method");
                let code = if len > 3 << 20 { "413" } else { "400" };
                let words = if code == "413" { "Request entity too large" } else { "invalid character 'x' looking for beginning of value" };
                answers(&[&admin[..], &["-H", "Content-Type: application/json"]].concat(), CONFIG_MAPS, code, words);
            }
        }
    }
    let (code, answer) = curl.ask_text(&curl.admin(), "/api/v1/namespaces/default");
    assert!(code == "200" && answer.starts_with("{\n  \"kind\": \"Namespace\",\n  \"apiVersion\": \"v1\",\n"), "{answer}");
    let (_, answer) = curl.ask_text(&curl.admin(), "/api/v1/namespaces/default?pretty=false");
    assert!(answer.starts_with("{\"kind\":\"Namespace\",\"apiVersion\":\"v1\",") && answer.ends_with("}\n"), "{answer}");
}

struct Curl<'a> {
    cluster: &'a Cluster,
    dir: PathBuf,
}

impl<'a> Curl<'a> {
    fn with_credentials_of(cluster: &'a Cluster) -> Self {
        let dir = cluster.data_dir().join("curl");
        std::fs::create_dir(&dir).expect("a directory");
        for (field, file) in [("client-certificate-data", "cert"), ("client-key-data", "key")] {
            let path = format!("jsonpath={{.users[0].user.{field}}}");
            let data = cluster.kubectl().run(&["config", "view", "--raw", "-o", &path]).ok();
            let decode = format!("printf %s '{data}' | base64 -d > {}", dir.join(file).display());
            cluster.net.run("sh", &["-c", &decode]).ok();
        }
        Self { cluster, dir }
    }

    fn at(&self, file: &str) -> String {
        Path::new(&self.dir).join(file).display().to_string()
    }

    fn body(&self, len: usize) -> String {
        let path = self.at(&format!("body-{len}"));
        std::fs::write(&path, "x".repeat(len)).expect("written");
        format!("@{path}")
    }

    fn admin(&self) -> Vec<&'static str> {
        vec!["--admin"]
    }

    fn ask(&self, args: &[&str], path: &str) -> (String, Value) {
        let (code, text) = self.ask_text(args, path);
        let answer = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?} {path}: {error}: {text:?}"));
        (code, answer)
    }

    /// The status and the body of the answer, which must be complete for curl.
    fn ask_text(&self, args: &[&str], path: &str) -> (String, String) {
        let url = format!("https://127.0.0.1:6443{path}");
        let (cert, key) = (self.at("cert"), self.at("key"));
        let mut all = vec!["-sSk", "--max-time", "30", "-w", "\r%{http_code}"];
        for arg in args {
            match *arg {
                "--admin" => all.extend(["--cert", cert.as_str(), "--key", key.as_str()]),
                arg => all.push(arg),
            }
        }
        all.push(&url);
        let output = self.cluster.net.run("curl", &all).ok();
        let (text, code) = output.rsplit_once('\r').expect("a status behind the body");
        (code.to_owned(), text.to_owned())
    }
}
