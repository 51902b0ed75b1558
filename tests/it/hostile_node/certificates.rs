//! Serving certificates: a node gets one for its own name and address, but not for addresses that it only claims.

use super::*;

pub(super) fn it_is_nobody_else(admin: &Kubectl<'_>, evil: &Evil<'_>) {
    let story = evil.story;
    let own = story.machine.ip.as_str();
    let server = story.server.net.ip.as_str();
    // The node claims the addresses of others.
    let claims = [own, server, VICTIM_IP, "10.96.0.1", "10.244.0.9", "127.0.0.1", "169.254.169.254", "192.168.78.77"];
    evil.claims(&claims.map(|address| ("InternalIP", address)), 10_250);
    let ask = |name: &str, names: &[&str]| {
        let wanted = Wanted { name, signer: SERVING_SIGNER, common_name: "system:node:evil", organization: "system:nodes", names };
        evil.kubectl.with_input("create -f -", &request(&wanted).0)
    };
    ask("good", &["evil", own]).ok();
    signed(admin, "good");
    for (name, san, why) in [
        ("api-server", server, "is an address of the cluster's own"),
        ("service", "10.96.0.1", "10.96.0.1 is an address of the cluster's own"),
        ("pod", "10.244.0.9", "10.244.0.9 is an address of the cluster's own"),
        ("loopback", "127.0.0.1", "127.0.0.1 is not the address of one machine"),
        ("metadata", "169.254.169.254", "169.254.169.254 is not the address of one machine"),
        ("neighbour", VICTIM_IP, "192.168.78.9 is also an address of Node victim"),
        ("unproven", "192.168.78.77", "192.168.78.77 is not proven: the request came from 192.168.78.2"),
        ("api-name", "kubernetes.default.svc", "\"kubernetes.default.svc\" is not the name of the Node"),
        ("other-name", "victim", "\"victim\" is not the name of the Node"),
        ("webhook", "hook.shop.svc", "\"hook.shop.svc\" is not the name of the Node"),
    ] {
        ask(name, &["evil", own, san]).ok();
        left_to_a_person(admin, name, why);
    }
    // An address that another node has too is no longer certified. It is certified again when only this node has it.
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": own}]}});
    admin.ok(&format!("patch node victim --subresource=status --type=merge -p {addresses}"));
    ask("contested", &[own]).ok();
    left_to_a_person(admin, "contested", "is also an address of Node victim");
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": VICTIM_IP}]}});
    admin.ok(&format!("patch node victim --subresource=status --type=merge -p {addresses}"));
    signed(admin, "contested");
    others_names_are_rejected(&evil.kubectl);
    where_it_came_from_is_the_servers_to_say(story, admin, &evil.kubectl);
}

fn others_names_are_rejected(evil: &Kubectl<'_>) {
    for (signer, common_name, organization, wanted) in [
        (SERVING_SIGNER, "system:node:victim", "system:nodes", "can only create a node CSR with CN=system:node:evil"),
        (CLIENT_SIGNER, "system:node:victim", "system:nodes", "can only create a node CSR with CN=system:node:evil"),
        (CLIENT_SIGNER, "kubernetes-admin", "system:masters", "can only create a node CSR with CN=system:node:evil"),
        (
            "kubernetes.io/kube-apiserver-client",
            "kubernetes-admin",
            "system:masters",
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
        ),
    ] {
        let request_for = Wanted { name: "forged", signer, common_name, organization, names: &["evil"] };
        let refused = evil.with_input("create -f -", &request(&request_for).0).fails();
        assert!(refused.contains(wanted), "{signer} {common_name}: {refused}");
    }
    let refused = evil.fails("certificate approve neighbour");
    assert!(refused.contains("cannot update resource \"certificatesigningrequests/approval\""), "{refused}");
}

/// A request claims to come from another address than that of its connection.
fn where_it_came_from_is_the_servers_to_say(story: &Story, admin: &Kubectl<'_>, evil: &Kubectl<'_>) {
    let wanted = Wanted {
        name: "said",
        signer: SERVING_SIGNER,
        common_name: "system:node:evil",
        organization: "system:nodes",
        names: &["192.168.78.77"],
    };
    let mut manifest: Value = serde_json::from_str(&request(&wanted).0).expect("JSON");
    manifest["spec"]["extra"] = json!({"skiff.internal/remote-address": ["192.168.78.77"]});
    evil.with_input("create --validate=false -f -", &manifest.to_string()).ok();
    left_to_a_person(admin, "said", "the request came from 192.168.78.2");
    let noted = admin.field("csr/said", "/spec/extra/skiff.internal~1remote-address");
    assert_eq!(noted, json!([story.machine.ip]));
}
