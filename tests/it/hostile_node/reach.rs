//! Connections of the server to addresses that a Node reports: they reach nodes and nothing else.

use super::*;

/// An administrator uses the proxy, logs and exec of a Node and its Pod, whose reported addresses point elsewhere.
pub(super) fn it_leads_the_server_nowhere(admin: &Kubectl<'_>, evil: &Evil<'_>) {
    let story = evil.story;
    let server = story.server.net.ip.as_str();
    for (kind, address, port) in [
        ("InternalIP", "127.0.0.1", 6443),
        ("InternalIP", "::1", 6443),
        ("InternalIP", "::ffff:127.0.0.1", 6443),
        ("InternalIP", "0.0.0.0", 6443),
        ("InternalIP", "169.254.169.254", 80),
        ("InternalIP", "10.96.0.1", 443),
        ("InternalIP", server, 6443),
        ("Hostname", "localhost", 6443),
    ] {
        evil.claims(&[(kind, address)], port);
        for words in [
            "get --raw /api/v1/nodes/evil/proxy/api/v1/namespaces/kube-system/secrets".to_owned(),
            format!("get --raw /api/v1/nodes/https:evil:{port}/proxy/api/v1/namespaces/kube-system/secrets"),
            "logs own".to_owned(),
            "exec own -- id".to_owned(),
        ] {
            let refused = admin.fails(&words);
            assert!(refused.contains("address not allowed"), "{address} {words}: {refused}");
        }
    }
    // With its own address the server connects there, and nothing listens.
    evil.claims(&[("InternalIP", &story.machine.ip)], 10_250);
    let refused = admin.fails("get --raw /api/v1/nodes/evil/proxy/healthz");
    assert!(refused.contains("connection refused"), "{refused}");
    // The node reports a Pod's address, too.
    let pod = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    evil.says_of_its_pod(&pod);
    let refused = admin.fails("get --raw /api/v1/namespaces/default/pods/https:own:6443/proxy/api");
    assert!(refused.contains("address not allowed"), "{refused}");
    let pod = json!({"status": {"podIP": server, "podIPs": [{"ip": server}]}});
    evil.says_of_its_pod(&pod);
    let refused = admin.fails("get --raw /api/v1/namespaces/default/pods/https:own:6443/proxy/api");
    assert!(refused.contains("address not allowed"), "{refused}");
    // The server's client certificate for nodes opens nothing else.
    let pki = |file: &str| story.server.data_dir().join("pki").join(file).display().to_string();
    let (certificate, key) = (pki("apiserver-kubelet-client.crt"), pki("apiserver-kubelet-client.key"));
    let url = "https://127.0.0.1:6443/api/v1/namespaces/kube-system/secrets";
    let answer = story.server.net.run("curl", &["-sSk", "--max-time", "10", "--cert", &certificate, "--key", &key, url]).ok();
    assert!(answer.contains("User \\\"kube-apiserver-kubelet-client\\\" cannot list resource \\\"secrets\\\""), "{answer}");
}
