"""A day with the official Python client. Called with a kubeconfig; the Pod `tools` runs already, and the image
`it/grpc:latest` is there.

Each function is a chapter, told in order; its name is printed when all of it was so. The first thing
that is not ends the script with its reason.
"""

import base64
import json
import sys
import time
from contextlib import closing

import grpc
from kubernetes import client, config, dynamic, watch
from kubernetes.client import ApiException
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError
from kubernetes.stream import portforward, stream

NAMESPACE = "default"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
# How long to wait for a condition.
DEADLINE_SECONDS = 60


def refusal(call, *args, **kwargs):
    """The status, the reason and the message with which a call is refused."""
    try:
        answer = call(*args, **kwargs)
    except ApiException as error:
        body = json.loads(error.body)
        assert body["kind"] == "Status" and body["code"] == error.status, body
        return error.status, body["reason"], body["message"]
    raise AssertionError(f"not refused: {answer}")


def eventually(what, look):
    """What a look finds, as soon as it finds something."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {DEADLINE_SECONDS} s: {what}")


def config_map(name, labels=None, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels), data=data)


def versions_are_told():
    version = client.VersionApi().get_code()
    assert version.major == "1" and int(version.minor) >= 36, version
    groups = {group.name for group in client.ApisApi().get_api_versions().groups}
    assert {"apps", "autoscaling", "resource.k8s.io", "storagemigration.k8s.io"} <= groups, groups
    names = {resource.name for resource in client.CoreV1Api().get_api_resources().resources}
    assert {"pods", "pods/exec", "componentstatuses"} <= names, names


def objects_live_and_die():
    core = client.CoreV1Api()
    made = core.create_namespaced_config_map(NAMESPACE, config_map("one", key="value"))
    assert made.metadata.uid and made.metadata.creation_timestamp.tzinfo, made
    assert core.read_namespaced_config_map("one", NAMESPACE).data == {"key": "value"}
    made.data["key"] = "other"
    changed = core.replace_namespaced_config_map("one", NAMESPACE, made)
    assert changed.data == {"key": "other"}
    # The revision that was read is older than the present one.
    status, reason, message = refusal(core.replace_namespaced_config_map, "one", NAMESPACE, made)
    assert (status, reason) == (409, "Conflict") and "the object has been modified" in message, message
    dry = core.create_namespaced_config_map(NAMESPACE, config_map("dry"), dry_run="All")
    assert dry.metadata.name == "dry"
    assert refusal(core.read_namespaced_config_map, "dry", NAMESPACE)[:2] == (404, "NotFound")
    gone = core.delete_namespaced_config_map("one", NAMESPACE, body=client.V1DeleteOptions())
    assert gone["status"] == "Success", gone


def lists_come_in_pages():
    core = client.CoreV1Api()
    for number in range(7):
        core.create_namespaced_config_map(NAMESPACE, config_map(f"page-{number}", labels={"story": "pages"}))
    chosen = {"namespace": NAMESPACE, "label_selector": "story=pages"}
    page = core.list_namespaced_config_map(limit=3, **chosen)
    sizes, revision = [len(page.items)], page.metadata.resource_version
    while page.metadata._continue:
        # An object created now belongs to a later list.
        core.create_namespaced_config_map(NAMESPACE, config_map(f"late-{len(sizes)}", labels={"story": "pages"}))
        page = core.list_namespaced_config_map(limit=3, _continue=page.metadata._continue, **chosen)
        assert page.metadata.resource_version == revision, page.metadata
        sizes.append(len(page.items))
    assert sizes == [3, 3, 1], sizes
    assert refusal(core.list_namespaced_config_map, NAMESPACE, _continue="nonsense")[:2] == (400, "BadRequest")
    core.delete_collection_namespaced_config_map(**chosen)
    assert core.list_namespaced_config_map(**chosen).items == []


def watches_tell_what_happens():
    core = client.CoreV1Api()
    since = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, config_map("seen", labels={"story": "watch"}, key="a"))
    core.patch_namespaced_config_map("seen", NAMESPACE, {"data": {"key": "b"}})
    core.delete_namespaced_config_map("seen", NAMESPACE)
    began = time.monotonic()
    events = watch.Watch().stream(
        core.list_namespaced_config_map, NAMESPACE, resource_version=since, timeout_seconds=2, label_selector="story=watch"
    )
    told = [(event["type"], event["object"].data["key"]) for event in events]
    assert told == [("ADDED", "a"), ("MODIFIED", "b"), ("DELETED", "b")], told
    assert 1 < time.monotonic() - began < 20, "a watch ends after its time and not before"


def patches_are_of_three_kinds():
    apps = client.AppsV1Api()
    container = client.V1Container(name="c", image="samples/tools:latest", command=["sleep", "1000"])
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": "py"}), spec=client.V1PodSpec(containers=[container])
    )
    spec = client.V1DeploymentSpec(replicas=0, selector=client.V1LabelSelector(match_labels={"app": "py"}), template=template)
    apps.create_namespaced_deployment(NAMESPACE, client.V1Deployment(metadata=client.V1ObjectMeta(name="py"), spec=spec))
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "samples/tools:latest"}]}}}}
    patched = apps.patch_namespaced_deployment("py", NAMESPACE, sidecar, _content_type=STRATEGIC_PATCH)
    assert [c.name for c in patched.spec.template.spec.containers] == ["d", "c"], "lists are merged by name"
    patched = apps.patch_namespaced_deployment("py", NAMESPACE, sidecar, _content_type=MERGE_PATCH)
    assert [c.name for c in patched.spec.template.spec.containers] == ["d"], "lists are replaced"
    grow = [{"op": "test", "path": "/spec/replicas", "value": 0}, {"op": "replace", "path": "/spec/revisionHistoryLimit", "value": 3}]
    patched = apps.patch_namespaced_deployment("py", NAMESPACE, grow, _content_type=JSON_PATCH)
    assert patched.spec.revision_history_limit == 3
    grow[0]["value"] = 9
    assert refusal(apps.patch_namespaced_deployment, "py", NAMESPACE, grow, _content_type=JSON_PATCH)[0] == 422
    scaled = apps.patch_namespaced_deployment_scale("py", NAMESPACE, {"spec": {"replicas": 1}})
    assert scaled.spec.replicas == 1


def fields_are_owned():
    core = client.CoreV1Api()

    def apply(manager, value, **options):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned"}, "data": {"key": value}}
        return core.patch_namespaced_config_map(
            "owned", NAMESPACE, body, field_manager=manager, _content_type=APPLY_PATCH, **options
        )

    made = apply("first", "a")
    assert [(entry.manager, entry.operation) for entry in made.metadata.managed_fields] == [("first", "Apply")]
    status, reason, message = refusal(apply, "second", "b")
    assert (status, reason) == (409, "Conflict") and 'conflict with "first": .data.key' in message, message
    assert apply("second", "b", force=True).data == {"key": "b"}
    core.delete_namespaced_config_map("owned", NAMESPACE)


def deletion_is_passed_on():
    apps, core = client.AppsV1Api(), client.CoreV1Api()
    mine = {"namespace": NAMESPACE, "label_selector": "app=py"}
    eventually("the Deployment has a Pod", lambda: core.list_namespaced_pod(**mine).items)
    apps.delete_namespaced_deployment("py", NAMESPACE, propagation_policy="Foreground", grace_period_seconds=0)
    eventually("the Deployment is gone", lambda: not apps.list_namespaced_deployment(NAMESPACE).items)
    left = apps.list_namespaced_replica_set(**mine).items
    assert left == [], "in the foreground, what is owned goes first"
    eventually("its Pods are gone", lambda: not core.list_namespaced_pod(**mine).items)


def commands_run_in_containers():
    core = client.CoreV1Api()

    def run(script, **options):
        command = ["sh", "-c", script]
        return stream(
            core.connect_get_namespaced_pod_exec, "tools", NAMESPACE, command=command, stdout=True, stderr=True, **options
        )

    assert run("echo hello; echo there >&2", stdin=False, tty=False) in ("hello\nthere\n", "there\nhello\n")
    # The client loses a line that it reads together with the end, so the command waits for a second line.
    talk = run("read word; echo got $word; read word; exit 3", stdin=True, tty=False, _preload_content=False)
    talk.write_stdin("this\n")
    assert talk.readline_stdout(timeout=DEADLINE_SECONDS) == "got this"
    talk.write_stdin("that\n")
    talk.run_forever(timeout=DEADLINE_SECONDS)
    assert talk.returncode == 3
    much = run("yes 0123456789abcde | head -n 65536", stdin=False, tty=False)
    assert len(much) == 1 << 20, len(much)
    try:
        run("true", stdin=False, tty=False, container="none")
        raise AssertionError("there is no such container")
    except ApiException as error:
        assert "400" in str(error) or "container none is not valid" in str(error), error


def ports_are_forwarded():
    core = client.CoreV1Api()
    serve = "mkdir -p /www && echo from the Pod > /www/index.html && httpd -p 127.0.0.1:8081 -h /www"
    stream(core.connect_get_namespaced_pod_exec, "tools", NAMESPACE, command=["sh", "-c", serve], stdout=True, stderr=True)
    forward = portforward(core.connect_get_namespaced_pod_portforward, "tools", NAMESPACE, ports="8081,81")
    with closing(forward.socket(8081)) as socket:
        socket.settimeout(DEADLINE_SECONDS)
        socket.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = b""
        while piece := socket.recv(1024):
            answer += piece
    assert answer.endswith(b"from the Pod\n"), answer
    assert "connection refused" in eventually("the error of the other port", lambda: forward.error(81)), forward.error(81)


def logs_are_followed():
    core = client.CoreV1Api()
    script = "for n in 1 2 3; do echo line $n; sleep 0.2; done"
    container = client.V1Container(
        name="c", image="samples/tools:latest", image_pull_policy="Never", command=["sh", "-c", script]
    )
    spec = client.V1PodSpec(containers=[container], restart_policy="Never", runtime_class_name="runc")
    core.create_namespaced_pod(NAMESPACE, client.V1Pod(metadata=client.V1ObjectMeta(name="talker"), spec=spec))

    def phase():
        return core.read_namespaced_pod("talker", NAMESPACE).status.phase

    eventually("the Pod runs", lambda: phase() in ("Running", "Succeeded"))
    lines = list(watch.Watch().stream(core.read_namespaced_pod_log, "talker", NAMESPACE))
    assert lines == ["line 1", "line 2", "line 3"], lines
    eventually("the Pod has ended", lambda: phase() == "Succeeded")
    assert core.read_namespaced_pod_log("talker", NAMESPACE, tail_lines=1) == "line 3\n"
    core.delete_namespaced_pod("talker", NAMESPACE, grace_period_seconds=0)


def custom_objects_are_objects():
    extensions, custom = client.ApiextensionsV1Api(), client.CustomObjectsApi()
    size = client.V1JSONSchemaProps(type="integer", minimum=1)
    spec = client.V1JSONSchemaProps(type="object", properties={"size": size})
    schema = client.V1CustomResourceValidation(
        open_apiv3_schema=client.V1JSONSchemaProps(type="object", properties={"spec": spec})
    )
    version = client.V1CustomResourceDefinitionVersion(name="v1", served=True, storage=True, schema=schema)
    names = client.V1CustomResourceDefinitionNames(kind="Snake", plural="snakes")
    definition = client.V1CustomResourceDefinition(
        metadata=client.V1ObjectMeta(name="snakes.py.example.com"),
        spec=client.V1CustomResourceDefinitionSpec(group="py.example.com", names=names, scope="Namespaced", versions=[version]),
    )
    extensions.create_custom_resource_definition(definition)

    def established():
        conditions = extensions.read_custom_resource_definition("snakes.py.example.com").status.conditions or []
        return any(condition.type == "Established" and condition.status == "True" for condition in conditions)

    eventually("the definition is established", established)
    place = ("py.example.com", "v1", NAMESPACE, "snakes")
    snake = {"apiVersion": "py.example.com/v1", "kind": "Snake", "metadata": {"name": "monty"}, "spec": {"size": 2}}
    assert custom.create_namespaced_custom_object(*place, snake)["spec"] == {"size": 2}
    snake["metadata"]["name"], snake["spec"]["size"] = "tiny", 0
    status, reason, message = refusal(custom.create_namespaced_custom_object, *place, snake)
    assert (status, reason) == (422, "Invalid"), message
    assert "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1" in message, message
    patched = custom.patch_namespaced_custom_object(*place, "monty", {"spec": {"size": 5}})
    assert patched["spec"]["size"] == 5
    assert [item["metadata"]["name"] for item in custom.list_namespaced_custom_object(*place)["items"]] == ["monty"]
    custom.delete_namespaced_custom_object(*place, "monty")
    extensions.delete_custom_resource_definition("snakes.py.example.com")


def any_kind_is_found_by_discovery():
    kinds = dynamic.DynamicClient(client.ApiClient())
    claims = kinds.resources.get(api_version="resource.k8s.io/v1", kind="ResourceClaim")
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "claim"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    made = claims.create(body=claim, namespace=NAMESPACE)
    assert made.spec.devices.requests[0].exactly.allocationMode == "ExactCount", made
    try:
        claims.create(body=claim, namespace=NAMESPACE)
        raise AssertionError("it exists")
    except ConflictError as error:
        assert (error.status, json.loads(error.body)["reason"]) == (409, "AlreadyExists"), error.body
    patched = claims.patch(
        body={"metadata": {"labels": {"a": "b"}}}, name="claim", namespace=NAMESPACE, content_type=MERGE_PATCH
    )
    assert patched.metadata.labels.a == "b"
    applied = claims.server_side_apply(
        body={**claim, "metadata": {"name": "claim", "labels": {"c": "d"}}},
        namespace=NAMESPACE,
        field_manager="story",
        force_conflicts=True,
    )
    assert applied.metadata.labels.c == "d"
    assert [item.metadata.name for item in claims.get(namespace=NAMESPACE).items] == ["claim"]
    seen = [event["type"] for event in claims.watch(namespace=NAMESPACE, timeout=1)]
    assert seen == ["ADDED"], seen
    claims.delete(name="claim", namespace=NAMESPACE)
    try:
        claims.get(name="claim", namespace=NAMESPACE)
        raise AssertionError("it is gone")
    except NotFoundError as error:
        assert error.status == 404
    for kind, version in [("HorizontalPodAutoscaler", "autoscaling/v2"), ("ServiceCIDR", "networking.k8s.io/v1")]:
        assert kinds.resources.get(api_version=version, kind=kind).get().kind == f"{kind}List"


def a_guest_speaks_grpc():
    """A WebAssembly server is ready by a gRPC probe, and answers gRPC's own client."""
    core = client.CoreV1Api()
    probe = client.V1Probe(grpc=client.V1GRPCAction(port=8080), period_seconds=1)
    container = client.V1Container(name="c", image="it/grpc:latest", image_pull_policy="Never", readiness_probe=probe)
    spec = client.V1PodSpec(containers=[container], termination_grace_period_seconds=1)
    core.create_namespaced_pod(NAMESPACE, client.V1Pod(metadata=client.V1ObjectMeta(name="grpc"), spec=spec))

    def ready():
        status = core.read_namespaced_pod("grpc", NAMESPACE).status
        is_ready = any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions or [])
        return status if is_ready else None

    address = f"{eventually('the Pod is ready', ready).pod_ip}:8080"
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        # Messages are bytes here: the first one has the field `status` with SERVING.
        health = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=DEADLINE_SECONDS)
        assert health == b"\x08\x01", health
        echo = channel.unary_unary("/it.Echo/Say")
        # More than a window of HTTP/2.
        for message in [b"", b"hello", b"0123456789abcdef" * 16384]:
            answer = echo(message, timeout=DEADLINE_SECONDS)
            assert answer == message, (len(message), len(answer))
        calls = channel.stream_stream("/it.Echo/Talk")(iter([b"one", b"two"]), timeout=DEADLINE_SECONDS)
        assert list(calls) == [b"one", b"two"] and calls.code() == grpc.StatusCode.OK
    core.delete_namespaced_pod("grpc", NAMESPACE, grace_period_seconds=0)


def a_service_account_logs_in_with_a_token():
    core, rights = client.CoreV1Api(), client.RbacAuthorizationV1Api()
    core.create_namespaced_service_account(NAMESPACE, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="robot")))
    rule = client.V1PolicyRule(api_groups=[""], resources=["pods"], verbs=["get", "list"])
    rights.create_namespaced_role(NAMESPACE, client.V1Role(metadata=client.V1ObjectMeta(name="reader"), rules=[rule]))
    binding = client.V1RoleBinding(
        metadata=client.V1ObjectMeta(name="robot-reads"),
        role_ref=client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="reader"),
        subjects=[client.RbacV1Subject(kind="ServiceAccount", name="robot", namespace=NAMESPACE)],
    )
    rights.create_namespaced_role_binding(NAMESPACE, binding)
    wish = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=600))
    token = core.create_namespaced_service_account_token("robot", NAMESPACE, wish).status.token
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["sub"] == f"system:serviceaccount:{NAMESPACE}:robot", claims

    known = client.Configuration.get_default_copy()
    robot_config = client.Configuration(host=known.host, api_key={"authorization": token}, api_key_prefix={"authorization": "Bearer"})
    robot_config.ssl_ca_cert = known.ssl_ca_cert
    robot = client.ApiClient(robot_config)
    who = client.AuthenticationV1Api(robot).create_self_subject_review(client.V1SelfSubjectReview())
    assert who.status.user_info.username == f"system:serviceaccount:{NAMESPACE}:robot", who
    pods = client.CoreV1Api(robot)
    eventually("the binding is seen", lambda: pods.list_namespaced_pod(NAMESPACE).items)
    status, reason, message = refusal(pods.list_namespaced_secret, NAMESPACE)
    assert (status, reason) == (403, "Forbidden") and 'cannot list resource "secrets"' in message, message
    robot_config.api_key["authorization"] = token[:-4] + "AAAA"
    assert refusal(client.CoreV1Api(client.ApiClient(robot_config)).list_namespaced_pod, NAMESPACE)[:2] == (401, "Unauthorized")


def errors_say_what_is_wrong():
    core = client.CoreV1Api()
    for call, wanted in [
        (lambda: core.read_namespaced_pod("none", NAMESPACE), (404, "NotFound", 'pods "none" not found')),
        (
            lambda: core.create_namespaced_config_map("nowhere", config_map("a")),
            (404, "NotFound", 'namespaces "nowhere" not found'),
        ),
        (
            lambda: core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="default"))),
            (409, "AlreadyExists", 'namespaces "default" already exists'),
        ),
        (
            lambda: core.list_namespaced_pod(NAMESPACE, field_selector="spec.colour=red"),
            (400, "BadRequest", "field label not supported: spec.colour"),
        ),
    ]:
        status, reason, message = refusal(call)
        assert (status, reason) == wanted[:2] and wanted[2] in message, (status, reason, message)
    status, reason, message = refusal(core.create_namespaced_config_map, NAMESPACE, config_map("UPPER"))
    assert (status, reason) == (422, "Invalid") and "metadata.name: Invalid value" in message, message


CHAPTERS = [
    versions_are_told,
    objects_live_and_die,
    lists_come_in_pages,
    watches_tell_what_happens,
    patches_are_of_three_kinds,
    fields_are_owned,
    deletion_is_passed_on,
    commands_run_in_containers,
    ports_are_forwarded,
    logs_are_followed,
    custom_objects_are_objects,
    any_kind_is_found_by_discovery,
    a_guest_speaks_grpc,
    a_service_account_logs_in_with_a_token,
    errors_say_what_is_wrong,
]

if __name__ == "__main__":
    config.load_kube_config(sys.argv[1])
    for chapter in CHAPTERS:
        chapter()
        print(chapter.__name__, flush=True)
