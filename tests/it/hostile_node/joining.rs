//! The join token: which nodes it admits, and which not.

use super::*;

/// kubectl as the node `evil`, which joined with the token.
pub(super) fn with_the_join_token<'a>(story: &'a Story, admin: &Kubectl<'_>) -> Evil<'a> {
    let text = std::fs::read_to_string(story.server.data_dir().join("node-token")).expect("the join token");
    let (_, bearer) = text.trim().split_once('.').expect("hash and token");
    let id = bearer.split('.').next().expect("an id");
    let newcomer = story.kubectl_as(&json!({"token": bearer}));
    let group = "system:bootstrappers:kubeadm:default-node-token";
    assert!(newcomer.ok("auth whoami").contains(group));
    it_ends(admin, id);
    it_is_no_user(&newcomer, id);
    it_becomes_nobody_who_is_there(admin, &newcomer);
    let own = |name| Wanted { name, signer: CLIENT_SIGNER, common_name: "system:node:evil", organization: "system:nodes", names: &[] };
    let (manifest, key) = request(&own("evil"));
    newcomer.with_input("create -f -", &manifest).ok();
    let certificate = signed(admin, "evil");
    // The machine may lose its certificate and request it again; another machine does not get the name.
    newcomer.with_input("create -f -", &request(&own("evil-again")).0).ok();
    signed(admin, "evil-again");
    let elsewhere = story.kubectl_from(&story.server.net, &json!({"token": bearer}));
    elsewhere.with_input("create -f -", &request(&own("evil-elsewhere")).0).ok();
    left_to_a_person(admin, "evil-elsewhere", "evil was given to another by request evil");
    tokens_come_and_go(story);
    let kubectl = story.kubectl_as(&json!({"client-certificate-data": certificate, "client-key-data": STANDARD.encode(&key)}));
    let certificate = String::from_utf8(STANDARD.decode(certificate).expect("base64")).expect("PEM");
    Evil { story, kubectl, pem: keep(story.files.path(), &format!("{certificate}{key}")) }
}

fn it_ends(admin: &Kubectl<'_>, id: &str) {
    let words = format!("get secret bootstrap-token-{id} -n kube-system -o jsonpath={{.data.expiration}}");
    let text = String::from_utf8(STANDARD.decode(admin.ok(&words)).expect("base64")).expect("text");
    let left = text.parse::<jiff::Timestamp>().expect("a time").duration_since(jiff::Timestamp::now());
    assert!(left > jiff::SignedDuration::from_hours(23) && left <= jiff::SignedDuration::from_hours(24), "{left}");
}

fn it_is_no_user(newcomer: &Kubectl<'_>, id: &str) {
    for words in [
        "get nodes",
        "get pods -A",
        "get secrets -n kube-system",
        "create configmap mine",
        "get pods --as=kubernetes-admin",
        "create token default",
        "get lease victim -n kube-node-lease",
    ] {
        let refused = newcomer.fails(words);
        assert!(refused.contains(&format!("User \"system:bootstrap:{id}\" cannot")), "{words}: {refused}");
    }
}

fn it_becomes_nobody_who_is_there(admin: &Kubectl<'_>, newcomer: &Kubectl<'_>) {
    let wanted = |name, common_name, organization| Wanted { name, signer: CLIENT_SIGNER, common_name, organization, names: &[] };
    newcomer.with_input("create -f -", &request(&wanted("victim", "system:node:victim", "system:nodes")).0).ok();
    left_to_a_person(admin, "victim", "there is a Node victim");
    // Nobody approves these requests; a valid one that comes after them is signed below.
    newcomer.with_input("create -f -", &request(&wanted("master", "system:node:x", "system:masters")).0).ok();
    newcomer.with_input("create -f -", &request(&wanted("no-node", "kubernetes-admin", "system:nodes")).0).ok();
    let manager =
        Wanted { signer: "kubernetes.io/kube-apiserver-client", ..wanted("manager", "system:kube-controller-manager", "system:nodes") };
    newcomer.with_input("create -f -", &request(&manager).0).ok();
    for name in ["master", "no-node", "manager", "victim"] {
        let refused = newcomer.fails(&format!("certificate approve {name}"));
        assert!(refused.contains("certificatesigningrequests/approval"), "{refused}");
    }
    let signed = json!({"status": {"certificate": STANDARD.encode("-----BEGIN CERTIFICATE-----")}});
    let refused = newcomer.fails(&format!("patch csr victim --subresource=status --type=merge -p {signed}"));
    assert!(refused.contains("resource \"certificatesigningrequests/status\""), "{refused}");
}

/// `skiff token`, with which an administrator creates further tokens.
fn tokens_come_and_go(story: &Story) {
    let made = story.server.skiff(&["token", "create", "--ttl=2h", "--description=for-a-rack"]).ok();
    let (_, bearer) = made.trim().split_once('.').expect("hash and token");
    let (id, secret) = bearer.split_once('.').expect("a token");
    let newcomer = story.kubectl_as(&json!({"token": bearer}));
    assert!(newcomer.ok("auth whoami").contains(&format!("system:bootstrap:{id}")));
    let listed = story.server.skiff(&["token", "list"]).ok();
    assert!(listed.contains(id) && listed.contains("for-a-rack") && !listed.contains(secret), "{listed}");
    let command = story.server.skiff(&["token", "create", "--print-join-command"]).ok();
    assert!(command.starts_with(&format!("skiff agent --server https://{}:6443 --token ", story.server.net.ip)), "{command}");
    story.server.skiff(&["token", "delete", id]).ok();
    assert!(newcomer.fails("auth whoami").contains("You must be logged in to the server"));
    story.server.skiff(&["token", "create", "--groups=system:masters"]).fails();
}
