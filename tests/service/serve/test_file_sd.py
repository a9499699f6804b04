"""The file by which Prometheus finds a monitor."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.listener import write_file_sd
from ldlm_monitor.service.serve import Gate
from ldlm_monitor.service.serve.metrics import target, write_target


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("0.0.0.0", "node17:9847"),
        ("::", "node17:9847"),
        ("10.0.0.17", "10.0.0.17:9847"),
        ("fd00::17", "[fd00::17]:9847"),
        ("node17.ib", "node17.ib:9847"),
    ],
)
def test_others_reach_it_where_it_listens_or_by_the_machines_name(host: str, shown: str) -> None:
    assert target(host, 9847, "node17") == shown


def test_it_holds_the_target_and_its_labels(tmp_path: Path) -> None:
    path = tmp_path / "node17.json"
    write_target(path, "node17:9847", {"job_id": "4711", "cluster": "a"})
    assert json.loads(path.read_text()) == [
        {"targets": ["node17:9847"], "labels": {"cluster": "a", "job_id": "4711"}}
    ]


def test_it_is_replaced_whole_and_readable_by_others(tmp_path: Path) -> None:
    """Prometheus may read at any moment: a reader that has the old file open reads the old one."""
    path = tmp_path / "node17.json"
    path.write_text("[]")
    before = os.umask(0o077)
    try:
        with path.open() as reader:
            write_target(path, "node17:9847", {})
            assert reader.read() == "[]"
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["node17.json"]


def test_it_goes_with_its_monitor_unless_another_wrote_it_since(tmp_path: Path) -> None:
    path = tmp_path / "node17.json"
    first = write_target(path, "node17:9847", {})
    second = write_target(path, "node17:9848", {})
    first()
    assert "9848" in path.read_text()
    second()
    assert not path.exists()
    second()


def test_a_file_that_is_no_text_is_spared_too(tmp_path: Path) -> None:
    path = tmp_path / "node17.json"
    remove = write_target(path, "node17:9847", {})
    path.write_bytes(b"\xff")
    remove()
    assert path.read_bytes() == b"\xff"


def test_a_place_that_cannot_be_written_is_named_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="make its folder") as raised:
        write_target(tmp_path / "none/node17.json", "node17:9847", {})
    assert "none/node17.json: cannot be written (No such file or directory)" in str(raised.value)


@pytest.mark.parametrize("encrypts", [False, True])
def test_prometheus_is_told_to_come_by_https_where_the_monitor_speaks_that(
    tmp_path: Path, certificates: Any, encrypts: bool
) -> None:
    certificate, key = certificates.of("localhost")
    web = tmp_path / "web.yml"
    web.write_text(f"tls_server_config: {{cert_file: {certificate}, key_file: {key}}}\n")
    path = tmp_path / "node17.json"
    settings = Settings(files=("a.log",), listen="10.0.0.17:9847", file_sd=path)
    remove = write_file_sd(settings, 9847, Gate(web if encrypts else None))
    (group,) = json.loads(path.read_text())
    assert group["targets"] == ["10.0.0.17:9847"]
    assert group["labels"].get("__scheme__") == ("https" if encrypts else None)
    remove()
    assert not path.exists()
