"""The daemon with a bot's token and a local Slack: one message an incident, from NaN to its end."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.notify import slack_api as local

pytestmark = pytest.mark.live

LOG = "train_logs/train_20260129_101500_node0.log"
NAN = "WARNING: Invalid text_loss detected: nan\n"
OOM = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    " GPU 3 has a total capacity of 79.11 GiB\n"
)


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[local.SlackApi]:
    with local.slack_api() as state:
        (tmp_path / "ldlm-monitor.toml").write_text(
            f'[slack]\nchannel = "{local.CHANNEL}"\napi_url = "{state.url}"\n', encoding="utf-8"
        )
        monkeypatch.setenv("LDLM_SLACK_BOT_TOKEN", local.TOKEN)
        yield state


def test_an_incident_is_one_message_that_follows_it_to_its_end(
    start: Callable, append: Callable, bars: Callable, api: local.SlackApi
) -> None:
    append(LOG, bars(0, 40))
    daemon = start("train_logs/*.log").ready()
    append(LOG, NAN)
    api.wait_for(lambda: len(api.posted) == 1)
    append(LOG, OOM)
    api.wait_for(lambda: any("OutOfMemory" in str(each["blocks"]) for each in api.replies))
    (posted,) = api.posted
    api.wait_for(lambda: "OutOfMemory firing" in str(posted["blocks"]))
    assert "*First cause*" in str(posted["blocks"])
    assert local.TOKEN not in "\n".join(daemon.messages())
    daemon.stop()


def test_its_picture_comes_with_it(
    start: Callable, append: Callable, bars: Callable, api: local.SlackApi
) -> None:
    pytest.importorskip("matplotlib")
    append(LOG, bars(0, 40))
    start("train_logs/*.log").ready()
    append(LOG, NAN)
    api.wait_for(lambda: bool(api.shared))
    ((number, channel, thread),) = api.shared
    assert api.files[number].startswith(b"\x89PNG")
    assert (channel, thread) == (local.CHANNEL, api.posted[0]["ts"])


def test_after_a_kill_it_goes_on_in_the_same_message(
    start: Callable, append: Callable, bars: Callable, api: local.SlackApi
) -> None:
    append(LOG, bars(0, 40))
    daemon = start("train_logs/*.log").ready()
    append(LOG, NAN)
    api.wait_for(lambda: len(api.posted) == 1)
    daemon.wait_for_metric('notifications_total{outcome="sent",receiver="slack"} 1')
    daemon.process.kill()
    daemon.wait()
    append(LOG, OOM)
    start("train_logs/*.log").ready()
    api.wait_for(lambda: any("OutOfMemory" in str(each["blocks"]) for each in api.replies))
    assert len(api.posted) == 1
