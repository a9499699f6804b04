"""Kubernetes' objects, as they stand and as kustomize puts them together.

They are checked against the schemas of Kubernetes' own API, which the package
kubernetes-validate carries. It has none for the Prometheus Operator's kinds: of these it is
checked that they find what they select, and that their rules are those of rules/.
"""

import runpy
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ldlm_monitor.service.config import Settings

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy/kubernetes"
GENERATOR = runpy.run_path(str(FOLDER / "generate.py"))
OPERATORS = "monitoring.coreos.com/v1"
VERSIONS = ("1.29", "1.33")
"""The first with sidecars, and a recent one."""


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def written() -> list[dict[str, Any]]:
    """Every object of the folder, kustomizations aside."""
    return [
        each
        for path in sorted(FOLDER.rglob("*.yaml"))
        if path.name != "kustomization.yaml"
        for each in documents(path.read_text("utf-8"))
    ]


def of_kind(kind: str, objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


def templates(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["spec"]["template"] for each in objects if each["kind"] in ("DaemonSet", "Job")]


def monitors(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The container of each pod that is the monitor."""
    return [
        each
        for template in templates(objects)
        for part in ("containers", "initContainers")
        for each in template["spec"].get(part, ())
        if each["name"] == "monitor"
    ]


def kustomized(folder: str) -> list[dict[str, Any]]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl, which holds kustomize, is not installed")
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [kubectl, "kustomize", FOLDER / folder],
            capture_output=True, text=True, check=False,
            env={"PATH": "/usr/bin:/bin", "HOME": home},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_fits_the_schema_of_its_kind(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    for each in written():
        if each["apiVersion"] != OPERATORS:
            validate(each, version, strict=True)


def test_the_schema_is_one_that_refuses() -> None:
    package = pytest.importorskip("kubernetes_validate")
    wrong = of_kind("DaemonSet", written())
    wrong["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(package.ValidationError):
        package.validate(wrong, VERSIONS[0], strict=True)


def test_rules_are_those_of_the_repository() -> None:
    for name, text in GENERATOR["objects"]().items():
        there = (FOLDER / "operator" / name).read_text("utf-8")
        assert there == text, "run `python deploy/kubernetes/generate.py`"
        (rule,) = documents(text)
        plain = yaml.safe_load(
            (ROOT / f"rules/{name.removeprefix('rules-').removesuffix('.yaml')}.yml").read_text()
        )
        assert (rule["apiVersion"], rule["kind"]) == (OPERATORS, "PrometheusRule")
        assert rule["spec"] == plain


def test_the_pod_monitor_finds_every_monitor_and_the_labels_that_it_takes_over() -> None:
    spec = of_kind("PodMonitor", written())["spec"]
    (wanted,) = spec["selector"]["matchExpressions"]
    (endpoint,) = spec["podMetricsEndpoints"]
    pods = templates(written())
    assert len(pods) == 2
    for pod in pods:
        assert pod["metadata"]["labels"][wanted["key"]] in wanted["values"]
        assert "cluster" in pod["metadata"]["labels"]
    assert "cluster" in spec["podTargetLabels"]
    for monitor in monitors(written()):
        assert endpoint["port"] in {port["name"] for port in monitor["ports"]}


def test_monitors_can_do_nothing_but_read_and_serve() -> None:
    found = monitors(written())
    assert len(found) == 2
    for each in found:
        context = each["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert each["resources"]["limits"]["memory"]
        logs = [mount for mount in each["volumeMounts"] if "log" in mount["mountPath"]]
        assert logs
        assert all(mount["readOnly"] for mount in logs)


def test_the_configuration_of_the_daemon_set_is_one_that_the_monitor_takes() -> None:
    text = of_kind("ConfigMap", written())["data"]["ldlm-monitor.toml"]
    settings = Settings(**tomllib.loads(text))
    assert settings.listen_address == ("0.0.0.0", 9847)
    assert settings.headless


def test_kustomize_puts_all_of_it_together_with_the_name_of_the_cluster_everywhere() -> None:
    objects = kustomized(".")
    kinds = sorted(each["kind"] for each in objects)
    assert kinds == sorted(
        ["Namespace", "ServiceAccount", "ConfigMap", "DaemonSet", "PodMonitor"]
        + ["PrometheusRule"] * 3
    )
    pod = of_kind("DaemonSet", objects)["spec"]["template"]
    assert pod["metadata"]["labels"]["cluster"] == "my-cluster"
    assert monitors(objects)[0]["image"].startswith("registry.example.org/")
    validate = pytest.importorskip("kubernetes_validate").validate
    for each in [*objects, *kustomized("sidecar")]:
        if each["apiVersion"] != OPERATORS:
            validate(each, VERSIONS[-1], strict=True)
