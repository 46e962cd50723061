"""Checks the manifests: each against Kubernetes' own schema, all against each other, and what they configure."""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

# The oldest release that is still maintained, and the newest that there are schemas of.
VERSIONS = ["1.34", "1.37"]

# Kinds of operators, of which Kubernetes has no schema.
FOREIGN = {"ServiceMonitor"}

problems = []


def expect(holds, what):
    if not holds:
        problems.append(what)


def named(manifests, kind):
    return {m["metadata"]["name"]: m for m in manifests if m["kind"] == kind}


def matches(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())


def check_schemas(manifests):
    for manifest in manifests:
        if manifest["kind"] in FOREIGN:
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(manifest, version, strict=True)
            except kubernetes_validate.ValidationError as why:
                problems.append(f"{manifest['kind']} {manifest['metadata']['name']}, {version}: {why.message}")


def check_references(manifests):
    deployment = named(manifests, "Deployment")["warmgate"]
    pod = deployment["spec"]["template"]
    labels, spec = pod["metadata"]["labels"], pod["spec"]
    container = spec["containers"][0]
    ports = {port["name"] for port in container["ports"]}
    expect(matches(deployment["spec"]["selector"]["matchLabels"], labels), "the deployment selects other pods")
    budget = named(manifests, "PodDisruptionBudget")["warmgate"]
    expect(matches(budget["spec"]["selector"]["matchLabels"], labels), "the disruption budget selects other pods")
    services = named(manifests, "Service")
    for name in ["warmgate", "warmgate-admin"]:
        expect(matches(services[name]["spec"]["selector"], labels), f"the service {name} selects other pods")
        for port in services[name]["spec"]["ports"]:
            expect(port["targetPort"] in ports, f"the service {name} leads to no port of the pod")
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"]:
        expect(container[probe]["httpGet"]["port"] in ports, f"{probe} asks at no port of the pod")
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    expect(set(volumes) == mounted, f"volumes {set(volumes)}, mounted {mounted}")
    expect(volumes["config"]["configMap"]["name"] in named(manifests, "ConfigMap"), "no such ConfigMap")
    expect(spec["serviceAccountName"] in named(manifests, "ServiceAccount"), "no such ServiceAccount")
    scaled = named(manifests, "HorizontalPodAutoscaler")["warmgate"]["spec"]["scaleTargetRef"]
    expect((scaled["kind"], scaled["name"]) == ("Deployment", "warmgate"), "the autoscaler scales something else")
    monitor = named(manifests, "ServiceMonitor")["warmgate"]["spec"]
    watched = [s for s in services.values() if matches(monitor["selector"]["matchLabels"], s["metadata"]["labels"])]
    expect([s["metadata"]["name"] for s in watched] == ["warmgate-admin"], "Prometheus asks another service")
    for endpoint in monitor["endpoints"]:
        expect(endpoint["port"] in {p["name"] for p in watched[0]["spec"]["ports"]}, "Prometheus asks at no port")


def check_rights(manifests):
    role, binding = named(manifests, "Role")["warmgate-endpoints"], named(manifests, "RoleBinding")["warmgate-endpoints"]
    rights = [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}]
    expect(role["rules"] == rights, "Warmgate may do more, or less, than read EndpointSlices")
    bound = (binding["roleRef"]["kind"], binding["roleRef"]["name"])
    expect(bound == ("Role", role["metadata"]["name"]), "the binding is of another role")
    accounts = {(s["kind"], s["name"]) for s in binding["subjects"]}
    account = named(manifests, "Deployment")["warmgate"]["spec"]["template"]["spec"]["serviceAccountName"]
    expect(accounts == {("ServiceAccount", account)}, "the role is given to others than Warmgate's account")


def check_configuration(manifests, warmgate):
    text = named(manifests, "ConfigMap")["warmgate"]["data"]["warmgate.yaml"]
    spec = named(manifests, "Deployment")["warmgate"]["spec"]["template"]["spec"]
    with tempfile.TemporaryDirectory() as folder:
        secrets = pathlib.Path(folder)
        (secrets / "token").write_text("a-token-of-the-check\n")
        (secrets / "url").write_text("redis://:canary-password@redis:6379\n")
        for place in ["warmgate-admin", "warmgate-redis"]:
            text = text.replace(f"/run/secrets/{place}/", f"{folder}/")
        file = secrets / "warmgate.yaml"
        file.write_text(text)
        told = subprocess.run([warmgate, "check", "-c", file], capture_output=True, text=True)
    expect(told.returncode == 0, f"warmgate check: {told.stdout}{told.stderr}")
    expect("canary-password" not in told.stdout + told.stderr, "warmgate check shows a password")
    grace_s = int(yaml.safe_load(text)["shutdown"]["grace"].removesuffix("m")) * 60
    stop_s = int(spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    expect(grace_s + stop_s < spec["terminationGracePeriodSeconds"], "pods are killed before their streams are over")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--warmgate", required=True)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    manifests = [m for file in arguments.files for m in yaml.safe_load_all(file.read_text())]
    check_schemas(manifests)
    check_references(manifests)
    check_rights(manifests)
    check_configuration(manifests, arguments.warmgate)
    for problem in problems:
        print(f"WRONG: {problem}")
    print(f"{len(manifests)} manifests, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
