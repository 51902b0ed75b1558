//! Users of an OpenID Connect provider. The provider is another cluster, whose ServiceAccounts are users of this one.

use super::*;

const ISSUER: &str = "https://192.168.77.2:7443";

#[test]
fn accounts_of_one_cluster_are_users_of_another() {
    let files = tempfile::tempdir().expect("a directory");
    let flag = format!("--service-account-issuer={ISSUER}");
    let mut home = Cluster::prepared(Net::alone(), &["server", "--secure-port=7443", &flag]);
    home.start();
    let issuing = home.kubectl();
    // A provider's keys are public.
    issuing.ok("create clusterrolebinding keys --clusterrole=system:service-account-issuer-discovery --group=system:unauthenticated");
    let found = home.net.run("curl", &["-sSk", "--max-time", "10", &format!("{ISSUER}/.well-known/openid-configuration")]).ok();
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!((&found["issuer"], &found["jwks_uri"]), (&json!(ISSUER), &json!(format!("{ISSUER}/openid/v1/jwks"))));
    issuing.ok("create serviceaccount deployer");
    let token = |words: &str| issuing.ok(&format!("create token deployer {words}")).trim().to_owned();

    let authority = files.path().join("authority.pem");
    let root = issuing.ok("get configmap kube-root-ca.crt -n kube-system -o jsonpath={.data.ca\\.crt}");
    std::fs::write(&authority, root).expect("writes");
    let mut away = Cluster::prepared(
        home.net.shared(),
        &[
            "server",
            &format!("--oidc-issuer-url={ISSUER}"),
            &format!("--oidc-ca-file={}", authority.display()),
            "--oidc-client-id=away",
            "--oidc-signing-algs=ES256",
            "--oidc-username-prefix=home:",
        ],
    );
    away.start();
    let admin = away.kubectl();
    let visitor = |token: &str| kubectl_as(&away, files.path(), &json!({"token": token}));
    let deployer = visitor(&token("--audience=away"));
    let name = "home:system:serviceaccount:default:deployer";
    eventually("the other cluster's keys are known", || {
        let who = deployer.run(&["auth", "whoami"]);
        if who.stdout.contains(name) { Ok(()) } else { Err(who.to_string()) }
    });
    assert!(deployer.fails("get pods").contains(&format!("User \"{name}\" cannot list resource \"pods\"")));
    admin.ok(&format!("create rolebinding deployers --clusterrole=edit --user={name}"));
    assert_eq!(deployer.ok("create configmap made --from-literal=a=b"), "configmap/made created\n");
    for words in ["--audience=another", ""] {
        assert!(visitor(&token(words)).fails("get configmaps").contains("You must be logged in to the server"), "{words}");
    }
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token("--audience=away"), "audiences": [format!("https://kubernetes.default.svc.cluster.local")]},
    });
    let reviewed = admin.with_input("create -o json -f -", &review.to_string()).ok();
    let reviewed: Value = serde_json::from_str(&reviewed).expect("JSON");
    assert_eq!((&reviewed["status"]["authenticated"], &reviewed["status"]["user"]["username"]), (&json!(true), &json!(name)));
    // Cached keys stay valid while the provider is away.
    let late = token("--audience=away");
    drop(issuing);
    home.stop();
    assert!(visitor(&late).ok("auth whoami").contains(name));
}
