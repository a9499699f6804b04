"""Draws the boards from what a real Prometheus answers: `python docs/images/make_boards.py`.

Not Grafana's own pictures: Grafana is not asked. Each panel's queries go to a Prometheus that
scrapes real monitors, which follow four trainings while they grow (one goes well, one has a slow
rank and NaN, one stalls, one crashes); the answers are drawn with matplotlib, where and as wide as
the board has the panel. It takes three minutes, and needs the Debian package prometheus and the
extra `docs`.
"""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from webhook import webhook

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
SECONDS = 150
PAST = 400
VARIABLES = (
    ("$__rate_interval", "15s"), ("$__range", "3m"), ("$cluster", ".*"), ("$rank", ".*"),
    ("$job", ".+"), ("$instance", ".+"),
)  # fmt: skip
CHOSEN = {"ldlm-run-health": "slow, NaN", "ldlm-ranks": "slow, NaN|crashes"}
"""The runs that are chosen on a board; all on the others."""
HEALTH = ("HEALTHY", "WARNING", "UNHEALTHY", "CRITICAL")
COLOURS = ("#2e9e5b", "#e0b400", "#f07c1f", "#d3333f")
RUNS = {"well": 4, "slow, NaN": 4, "stalls": 2, "crashes": 2}
FAILED = '{"type":"end","status":"failed","error":"ValueError: shard 17 is damaged"}\n'
TIMEOUT = (
    "[rank0]:[E129 10:15:00.000000000 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1024, "
    "NumelOut=1024, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
)


def row(run: str, rank: int, step: int, at: float) -> str:
    """A step of a rank, with what is wrong in that run."""
    slow = 1.6 if run == "slow, NaN" and rank == 3 else 1.0
    loss: float | str = 1.8 + 2.5 * math.exp(-step / 200) + 0.03 * math.sin(7 * step + rank)
    if run == "slow, NaN" and step > PAST + 90 and step % 7 == 0:
        loss = "NaN"
    values = {
        "type": "step", "step": step, "time": at, "loss": loss, "loss_text": 1.1, "eval_loss": 2.1,
        "grad_norm": 0.7 + 0.2 * math.sin(step / 9), "learning_rate": 1e-4 * min(1, step / 300),
        "samples_per_second": 64 / slow, "tokens_per_second": 65536 / slow, "step_seconds": slow,
        "busy_seconds": 0.8 * slow, "memory_allocated_bytes": 5e10 + 2e9 * rank,
        "memory_reserved_bytes": 7e10, "skipped_steps": step // 200, "total_steps": 5000,
    }  # fmt: skip
    return json.dumps(values) + "\n"


class Training:
    """Files of one run, and the monitor that follows them."""

    def __init__(self, folder: Path, run: str, ranks: int, webhook: str) -> None:
        self.run, self.ranks, self.step = run, ranks, 0
        self.folder = folder / run.replace(" ", "_").replace(",", "")
        self.folder.mkdir()
        begun = time.time() - PAST
        for rank in range(ranks):
            head = {"schema": "ldlm.health/1", "type": "run", "run": run, "rank": rank}
            self._append(rank, json.dumps({**head, "world_size": ranks, "time": begun}) + "\n")
        while self.step < PAST:
            self.go_on(begun + self.step)
        self.log = self.folder / "train.log"
        self.log.touch()
        self.target = self.folder / "target.json"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ldlm_monitor", f"{self.folder}/*.jsonl", self.log, "--headless",
             "--run", run, "--listen", "127.0.0.1:0", "--file-sd", str(self.target),
             "--state-dir", str(self.folder / "state")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "LDLM_SLACK_WEBHOOK_URL": webhook},
        )  # fmt: skip

    def _append(self, rank: int, text: str) -> None:
        with (self.folder / f"health_rank{rank}.jsonl").open("a") as file:
            file.write(text)

    def go_on(self, at: float) -> None:
        """One step more, unless the run stalls by now."""
        if self.run in ("stalls", "crashes") and self.step > PAST + 40:
            if self.run == "crashes" and not self.log.stat().st_size:
                self.log.write_text(TIMEOUT)
                self._append(1, FAILED)
            return
        for rank in range(self.ranks):
            self._append(rank, row(self.run, rank, self.step, at))
            if self.step % 100 == 99:
                saved = {"type": "event", "kind": "checkpoint_saved", "time": at}
                self._append(rank, json.dumps({**saved, "step": self.step}) + "\n")
        self.step += 1

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait()


class Prometheus:
    """One of its own, that looks every second."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/api/v1/"
        found = [{"files": [str(each / "target.json")]} for each in folder.iterdir()]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [{"job_name": "ldlm-monitor", "file_sd_configs": found}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder / 'prometheus.yml'}",
             f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def ask(self, path: str, **arguments: object) -> list[dict[str, Any]]:
        """The series of an answer."""
        url = f"{self.url}{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url) as answer:
            return list(json.load(answer)["data"]["result"])

    def over_time(self, query: str) -> list[dict[str, Any]]:
        """Since the beginning."""
        now = time.time()
        return self.ask("query_range", query=query, start=now - SECONDS, end=now, step=1)

    def now(self, query: str) -> list[dict[str, Any]]:
        """At this moment."""
        return self.ask("query", query=query)

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait()


def filled(query: str, run: str) -> str:
    """As Grafana sends it."""
    for name, value in (*VARIABLES, ("$run", run)):
        query = query.replace(name, value)
    return query


def named(series: dict[str, Any], legend: str) -> str:
    """By the panel's legend, or by all labels that differ between series."""
    labels = {k: v for k, v in series["metric"].items() if k not in ("job", "instance", "__name__")}
    if legend in ("", "__auto"):
        return " ".join(labels.values())
    for label in ("run", "rank", "state", "kind", "component", "quantity", "instance", "record",
                  "reason", "receiver", "outcome"):  # fmt: skip
        legend = legend.replace(f"{{{{{label}}}}}", series["metric"].get(label, ""))
    return legend.strip()


def short(value: float, unit: str) -> str:
    """A number in the panel's unit, as Grafana shortens it."""
    if unit == "percentunit":
        return f"{100 * value:.0f} %"
    if unit in ("bytes", "Bps"):
        power = min(int(math.log2(abs(value)) // 10), 4) if abs(value) >= 1 else 0
        size = f"{value / 1024**power:.3g} {('', 'Ki', 'Mi', 'Gi', 'Ti')[power]}B"
        return f"{size}/s" if unit == "Bps" else size
    if unit == "s" and value >= 60:
        return f"{value / 60:.1f} min" if value < 3600 else f"{value / 3600:.1f} h"
    if unit == "short" and value >= 1000:
        return f"{value / 1000:.3g} K"
    return f"{value:.4g}" + {"s": " s", "h": " h", "cps": "/s"}.get(unit, "")


def healths(text: str) -> str:
    """The word of a health."""
    return HEALTH[int(float(text))]


def lines(axes: Any, panel: dict[str, Any], prometheus: Prometheus) -> None:
    """A curve a series; a query that has the axis on the right is dashed."""
    field = panel["fieldConfig"]
    on_right = {each["matcher"]["options"] for each in field["overrides"]}
    right = axes.twinx() if on_right else axes
    for target in panel["targets"]:
        place, style = (right, "--") if target["refId"] in on_right else (axes, "-")
        for series in prometheus.over_time(target["expr"]):
            times = [at for at, _ in series["values"]]
            values = [float(value) for _, value in series["values"]]
            first = times[0] if times else 0
            label = named(series, target.get("legendFormat", ""))
            place.plot([at - first for at in times], values, style, lw=1, label=label[:32])
    if "scaleDistribution" in field["defaults"]["custom"]:
        axes.set_yscale("log")
    for each in {axes, right}:
        each.yaxis.set_major_formatter(lambda value, _: short(value, field["defaults"]["unit"]))
        if each.get_yscale() == "log":
            each.yaxis.set_minor_formatter(each.yaxis.get_major_formatter())
        each.tick_params(which="both", labelsize=6)
    found = [each.get_legend_handles_labels() for each in dict.fromkeys((axes, right))]
    handles, labels = ([item for pair in found for item in pair[part]] for part in (0, 1))
    if labels:
        axes.legend(handles, labels, fontsize=5, loc="upper center", bbox_to_anchor=(0.5, -0.1),
                    ncols=4, frameon=False)  # fmt: skip
    axes.grid(alpha=0.25)


def stripes(axes: Any, panel: dict[str, Any], prometheus: Prometheus) -> None:
    """A row a series, coloured by the panel's steps or, for a health, by its words."""
    (target,) = panel["targets"]
    found = prometheus.over_time(target["expr"])
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    health = bool(panel["fieldConfig"]["defaults"].get("mappings"))
    colours = {"green": COLOURS[0], "yellow": COLOURS[1], "orange": COLOURS[2], "red": COLOURS[3]}
    for number, series in enumerate(found):
        first = series["values"][0][0]
        for at, text in series["values"]:
            value = float(text)
            colour = COLOURS[int(value)] if health else "green"
            if not health:
                passed = [
                    s["color"] for s in steps if s.get("value") is None or value >= s["value"]
                ]
                colour = colours.get(passed[-1], "grey")
            axes.barh(number, 1, left=at - first, height=0.9, color=colour)
    axes.set_yticks(range(len(found)), [named(s, target.get("legendFormat", "")) for s in found])


def words(axes: Any, panel: dict[str, Any], prometheus: Prometheus) -> None:
    """The last value of each series in big letters, or its name where the panel says so."""
    (target,) = panel["targets"]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    health = bool(panel["fieldConfig"]["defaults"].get("mappings"))
    named_only = panel["options"]["textMode"] == "name"
    found = prometheus.now(target["expr"])
    for number, series in enumerate(found[:5]):
        value = series["value"][1]
        label = named(series, target.get("legendFormat", ""))
        text = healths(value) if health else label if named_only else short(float(value), unit)
        place = 0.5 if len(found) == 1 else 0.85 - 0.8 * number / len(found)
        size = 15 if len(found) == 1 else 8
        axes.text(0.5, place, text if len(found) == 1 or named_only else f"{text}  {label}",
                  ha="center", va="center", fontsize=size, transform=axes.transAxes,
                  color=COLOURS[int(float(value))] if health else "black")  # fmt: skip
    axes.axis("off")


def table(axes: Any, panel: dict[str, Any], prometheus: Prometheus) -> None:
    """Rows by labels, a column a label and a query, named and shown as the panel says."""
    options = panel["transformations"][-1]["options"]
    overrides = {each["matcher"]["options"]: each["properties"]
                 for each in panel["fieldConfig"]["overrides"]}  # fmt: skip
    rows: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for target in panel["targets"]:
        name = f"Value #{target['refId']}" if len(panel["targets"]) > 1 else "Value"
        for series in prometheus.now(target["expr"]):
            labels = {key: text for key, text in series["metric"].items()
                      if key not in options["excludeByName"]}  # fmt: skip
            row = rows.setdefault(tuple(sorted(labels.items())), dict(labels))
            if not options["excludeByName"].get(name):
                title = options["renameByName"][name]
                (unit, *more) = (each["value"] for each in overrides[title])
                value = series["value"][1]
                row[title] = healths(value) if more else short(float(value), unit)
    titles = list(dict.fromkeys(title for row in rows.values() for title in row))
    shown = [[row.get(title, "") for title in titles] for _, row in sorted(rows.items())][:14]
    if shown:
        drawn = axes.table(shown, colLabels=titles, loc="upper center", cellLoc="left",
                           colLoc="left", edges="horizontal")  # fmt: skip
        drawn.auto_set_font_size(False)
        drawn.set_fontsize(7)
        drawn.auto_set_column_width(range(len(titles)))
    axes.axis("off")


PAINTERS = {"timeseries": lines, "state-timeline": stripes, "stat": words, "table": table}


def draw(board: dict[str, Any], prometheus: Prometheus, path: Path) -> None:
    """All panels where the board has them: Grafana's grid has 24 columns."""
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    for panel in panels:
        for target in panel["targets"]:
            target["expr"] = filled(target["expr"], CHOSEN.get(board["uid"], ".+"))
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in board["panels"])
    figure = plt.figure(figsize=(15, height * 0.36), dpi=80)
    for panel in panels:
        where = panel["gridPos"]
        axes = figure.add_axes((
            (where["x"] + 1.2) / 24.5, 1 - (where["y"] + where["h"] - 1.3) / (height + 1.5),
            (where["w"] - 1.6) / 24.5, (where["h"] - 2.3) / (height + 1.5),
        ))  # fmt: skip
        PAINTERS[panel["type"]](axes, panel, prometheus)
        axes.set_title(panel["title"], fontsize=8, loc="left")
        axes.tick_params(labelsize=6)
    figure.suptitle(
        f"{board['title']}: Prometheus' answers, drawn without Grafana", fontsize=9, y=1
    )
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)


def main() -> int:
    """Train, watch, and draw the boards beside this file."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        url, _ = stack.enter_context(webhook())
        trainings = [Training(Path(name), run, ranks, url) for run, ranks in RUNS.items()]
        for training in trainings:
            stack.callback(training.stop)
        prometheus = Prometheus(Path(name))
        stack.callback(prometheus.stop)
        over = threading.Event()

        def train() -> None:
            while not over.wait(1.0):
                for training in trainings:
                    training.go_on(time.time())

        thread = threading.Thread(target=train)
        thread.start()
        stack.callback(thread.join)
        stack.callback(over.set)
        time.sleep(SECONDS + 20)
        for path in sorted((ROOT / "dashboards").glob("*.json")):
            draw(json.loads(path.read_text()), prometheus, HERE / f"board-{path.stem}.png")
            print(path.stem)
    return 0


if __name__ == "__main__":
    sys.exit(main())
