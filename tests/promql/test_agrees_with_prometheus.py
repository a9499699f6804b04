"""A real Prometheus gives the same answers (its Debian package is 2.42).

Its ranges are closed on the left, so queries stand between the samples; and it lets
a rate reach back to where a counter was zero further than Prometheus 3 does, so
counters that begin within a range begin at zero. Answers are rounded, because
promtool compares them to the last bit.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from ldlm_monitor.points import Labels
from ldlm_monitor.promql import Evaluator, parse

SERIES = {
    'steps{run="a",rank="0"}': "0+7x20 0+3x20",
    'steps{run="a",rank="1"}': "5 6 _x6 9+2x30",
    'steps{run="b",rank="0"}': "0+11x10 2+5x29",
    'loss{run="a",rank="0"}': "4 3.5 3 2.5 2.25 2.1 2.05 2 1.9 1.7x30",
    'loss{run="b",rank="0"}': "9 -1 8 -2 7 _x10 -3 6 stale _ 4 3 2x10",
    'owner{run="a",user="x"}': "1x40",
    'owner{run="b",user="y"}': "2x40",
}
EXPRESSIONS = (
    *(f"{function}(steps[95s])" for function in ("rate", "increase", "delta", "irate", "idelta")),
    *(f"{function}(loss[95s])" for function in ("changes", "resets", "deriv")),
    *(
        f"{function}_over_time(loss[95s])"
        for function in ("avg", "min", "max", "sum", "count", "stddev", "stdvar", "last", "present")
    ),
    "predict_linear(loss[95s], 60)",
    "quantile_over_time(0.3, loss[95s])",
    "rate(steps[35s] offset 40s)",
    "loss offset 1m",
    "max_over_time(rate(steps[35s])[2m:15s])",
    *(
        f"{operator} by (run) (steps)"
        for operator in ("sum", "avg", "min", "max", "count", "stddev", "stdvar", "group")
    ),
    "quantile without (rank) (0.7, steps)",
    "topk(2, steps)",
    "bottomk by (run) (1, steps)",
    'count_values("value", floor(loss))',
    "steps / on (run) group_left (user) owner",
    "owner * on (run) group_right steps",
    "steps - ignoring (rank) group_left owner",
    "loss > 2 and steps < 100",
    "loss > bool 2",
    "3 < loss",
    "loss unless on (run) owner == 2",
    "loss or steps",
    "-loss % 1.5",
    "loss ^ 2 - 2 ^ 0.5",
    "abs(loss) + sgn(loss) + ceil(loss) + floor(loss)",
    "exp(loss) - ln(abs(loss)) * log2(steps + 1) + sqrt(steps)",
    "clamp(steps, 10, 50) + clamp_min(loss, 0) + clamp_max(loss, 3)",
    "time() - timestamp(loss)",
    "hour(steps * 3600) + minute(steps * 61) + day_of_week(steps * 90000) + year(steps * 1e7)",
    "absent(nothing{run='a'})",
    "absent_over_time(steps{rank='7'}[1m])",
    'label_replace(loss, "node", "n$1", "rank", "(.)")',
    'label_join(loss, "key", "/", "run", "rank")',
    "scalar(loss{run='a'}) + vector(1)",
    "loss @ 73 + loss @ end()",
)
TIMES = (33, 73, 143, 213, 393)


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    path = Path(__file__).with_name("run_script.py")
    spec = spec_from_file_location("promql_run_script_for_agreement", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def shown(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}"


def expectations(evaluator: Evaluator) -> list[dict[str, Any]]:
    found = []
    for text in EXPRESSIONS:
        rounded = f"round({text}, 0.0001)"
        expression = parse(rounded)
        for at in TIMES:
            samples = [
                {"labels": shown(sample.labels), "value": sample.value}
                for sample in evaluator(expression, float(at))
            ]
            found.append({"expr": rounded, "eval_time": f"{at}s", "exp_samples": samples})
    return found


@pytest.mark.live
@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is missing"
)
def test_prometheus_gives_the_same_answers(script: ModuleType, tmp_path: Path) -> None:
    storage = script.ScriptStorage()
    for text, values in SERIES.items():
        labels, _ = script.series(text)
        points = enumerate(script.points(values))
        storage.add(labels, [(10.0 * i, value) for i, value in points if value is not None])
    expected = expectations(Evaluator(storage))
    assert sum(bool(one["exp_samples"]) for one in expected) > len(expected) * 0.8
    test = {
        "interval": "10s",
        "input_series": [{"series": text, "values": values} for text, values in SERIES.items()],
        "promql_expr_test": expected,
    }
    path = tmp_path / "agreement.yml"
    path.write_text(yaml.safe_dump({"evaluation_interval": "10s", "tests": [test]}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
