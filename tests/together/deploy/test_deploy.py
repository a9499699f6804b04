"""What is deployed is checked by the tools that will read it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ldlm_monitor.judge.core.exported_metrics import METRICS

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd/ldlm-monitor@.service"
COMPOSE = DEPLOY / "compose/compose.yaml"


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


def run(*command: object) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@needs("systemd-analyze")
def test_the_unit_is_understood_and_exposes_little() -> None:
    """0 is a service that can do nothing, 10 one that can do all."""
    reported = run("systemd-analyze", "security", "--offline=yes", UNIT)
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", reported)
    assert exposure is not None
    assert float(exposure[1]) <= 2.0


@needs("systemd-analyze")
def test_systemd_finds_no_fault_with_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "ldlm-monitor"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "ldlm-monitor@logs.service"
    unit.write_text(UNIT.read_text().replace("/opt/ldlm-monitor/bin/ldlm-monitor", str(program)))
    assert run("systemd-analyze", "verify", unit) == ""


@needs("promtool")
@pytest.mark.parametrize(
    ("config", "options"),
    [
        ("prometheus/prometheus.yml", ()),
        ("fleet/prometheus.yml", ()),
        ("fleet/prometheus-agent.yml", ("--agent",)),
    ],
)
def test_prometheus_takes_its_configuration(
    config: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    copied = shutil.copy(DEPLOY / config, tmp_path)
    shutil.copytree(ROOT / "rules", tmp_path / "rules")
    assert "FAILED" not in run("promtool", "check", "config", *options, copied)


def test_what_the_monitor_leaves_to_an_alertmanager_is_shown() -> None:
    """The line that refuses `route`, `inhibit_rules` and `time_intervals` names this file."""
    shown = yaml.safe_load((DEPLOY / "fleet/alertmanager.yml").read_text("utf-8"))
    assert shown["route"]["routes"]
    assert shown["inhibit_rules"]
    used = {
        name for each in shown["route"]["routes"] for name in each.get("mute_time_intervals", ())
    }
    assert used == {each["name"] for each in shown["time_intervals"]}


@needs("amtool")
@pytest.mark.parametrize("folder", ["prometheus", "fleet"])
def test_alertmanager_takes_its_configuration_and_routes_by_severity(folder: str) -> None:
    config = DEPLOY / folder / "alertmanager.yml"
    run("amtool", "check-config", config)
    route = ("amtool", "config", "routes", "test", f"--config.file={config}")
    assert run(*route, "alertname=NonFiniteLoss", "severity=critical").splitlines()[0] == "slack"
    assert run(*route, "alertname=LossPlateau", "severity=info").splitlines()[0] == "nobody"
    assert run(*route, "alertname=Watchdog", "severity=none").splitlines()[0] == "dead-man"


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load(COMPOSE.read_text("utf-8")))


def test_compose_fits_the_schema_of_its_specification() -> None:
    """The Compose specification's own, which check-jsonschema carries."""
    pytest.importorskip("check_jsonschema")
    schema = ("--builtin-schema", "vendor.compose-spec")
    run(sys.executable, "-m", "check_jsonschema", *schema, COMPOSE)


def test_what_the_services_mount_and_build_from_is_there() -> None:
    for name, service in compose()["services"].items():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (COMPOSE.parent / source).exists(), (name, volume)
    build = compose()["services"]["monitor"]["build"]
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).is_file()


def test_nothing_is_open_to_other_machines() -> None:
    for service in compose()["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_the_services_find_each_other() -> None:
    services = compose()["services"]
    assert (
        services["monitor"]["environment"]["LDLM_ALERTMANAGER_URLS"] == "http://alertmanager:9093"
    )
    prometheus = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    (targets,) = prometheus["scrape_configs"][0]["static_configs"]
    assert targets["targets"] == ["monitor:9847"]
    assert services["monitor"]["environment"]["LDLM_ALLOWED_HOSTS"] == "monitor"
    sources = yaml.safe_load((DEPLOY / "compose/grafana/datasources.yml").read_text())
    assert sources["datasources"][0]["url"] == "http://prometheus:9090"
    assert {"monitor", "prometheus", "alertmanager"} <= set(services)


def test_the_image_runs_as_nobody_and_is_looked_after() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert "USER 10001:10001" in lines
    assert any(line.startswith("HEALTHCHECK") for line in lines)


def test_what_listens_for_others_answers_to_few_names() -> None:
    """A page in a browser near the container could read it by a name of its own otherwise."""
    image = (DEPLOY / "Dockerfile").read_text()
    assert "LDLM_LISTEN=0.0.0.0:9847" in image
    assert "LDLM_ALLOWED_HOSTS=localhost" in image
    settings = (DEPLOY / "kubernetes/daemonset/config.yaml").read_text()
    assert 'allowed_hosts = ["localhost"]' in settings


def test_no_metric_is_named_that_does_not_exist() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            named = set(
                # One with a colon before it is a part of a recorded series' name.
                re.findall(
                    r"(?<![:\w])ldlm_(?:train|run|detect|monitor|events)_\w+(?![\w:])",
                    path.read_text(),
                )
            )
            assert named <= METRICS.keys(), path
