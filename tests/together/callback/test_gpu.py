"""The monitor has the names that the callback gives to a GPU's values and to its own metrics."""

from ldlm_monitor.judge.core.exported_metrics import METRICS
from ldlm_monitor.logs.parse.vocabulary import measure
from tests.callback.test_gpu import EXPORTED, SAMPLED


def test_names_of_the_callback_are_the_monitors() -> None:
    assert all(measure(name).name == name for name in SAMPLED)
    assert set(METRICS) >= EXPORTED
