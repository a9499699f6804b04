"""What to change, in the user's own settings."""

import re
from importlib.resources import files
from pathlib import Path

from ldlm_monitor.finished.report.alert_advice import advice, recommendations
from ldlm_monitor.judge.core.packaged_rules import packaged_alerts

RULES = Path(__file__).parents[3] / "rules"


def test_advice_is_for_alerts_of_the_default_pack() -> None:
    assert set(advice()) <= set(packaged_alerts())


def test_a_known_value_gives_the_new_one() -> None:
    assert recommendations(["OutOfMemory"], {"L2T_TRAIN_BS": "8"})[0].startswith(
        "L2T_TRAIN_BS=4 (now 8): "
    )


def test_an_unknown_value_gives_the_direction() -> None:
    assert recommendations(["OutOfMemory"], {})[0].startswith("lower the batch size per GPU: ")


def test_a_value_that_is_no_number_is_shown_as_it_is() -> None:
    tried = recommendations(["NonFiniteLoss"], {"LEARNING_RATE": "auto"})
    assert tried[0].startswith("lower LEARNING_RATE (now auto): ")


def test_a_batch_of_one_cannot_be_halved() -> None:
    tried = recommendations(["OutOfMemory"], {"L2T_TRAIN_BS": "1"})
    assert not any("L2T_TRAIN_BS=0" in sentence for sentence in tried)


def test_a_value_beyond_all_numbers_gives_the_direction() -> None:
    tried = recommendations(["OutOfMemory"], {"L2T_TRAIN_BS": "9" * 400})
    assert tried[0].startswith("lower L2T_TRAIN_BS (now 999")


def test_what_is_set_already_is_not_advised() -> None:
    tried = recommendations(["NonFiniteGradient"], {"DTYPE": "fp32"})
    assert not any("DTYPE" in sentence for sentence in tried)


def test_the_same_advice_for_two_alerts_is_given_once() -> None:
    tried = recommendations(["NonFiniteLoss", "NonFiniteGradient"], {})
    assert len(tried) == len(set(tried)) == 3


def test_other_spellings_of_a_setting_are_known() -> None:
    tried = recommendations(["NonFiniteLoss"], {"optimizer.lr": "2e-3"})
    assert tried[0].startswith("optimizer.lr=0.001 (now 2e-3): ")


def test_the_words_of_a_framework_are_for_its_runs() -> None:
    """axolotl and nanoGPT have no L2T_TRAIN_BS and no DATA_WORKERS."""
    for framework, named in (("MM-LDLM", True), ("nanoGPT", False), ("unknown", False)):
        tried = recommendations([*advice()], {}, framework)
        assert any("L2T_TRAIN_BS" in text for text in tried) == named
        assert any("DATA_WORKERS" in text for text in tried) == named


def test_a_setting_that_no_log_names_is_set_in_words() -> None:
    tried = recommendations(["NonFiniteGradient"], {})
    assert any(text.startswith("set the precision to fp32: ") for text in tried)
    assert any(text.startswith("NCCL_DEBUG=INFO: ") for text in recommendations(["NcclError"], {}))


def test_what_incidents_and_rules_advise_names_no_setting_of_one_trainer() -> None:
    texts = (files("ldlm_monitor.judge.incidents") / "data/actions.yml").read_text("utf-8")
    texts += "".join(path.read_text("utf-8") for path in RULES.glob("*.yml"))
    assert not re.findall(r"L2T_|DATA_WORKERS|LEARNING_RATE|WARMUP_STEPS|GRAD_CLIP_NORM", texts)
