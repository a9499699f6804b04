"""Plain words of the main command are read without cyclopts, and mean what cyclopts says."""

from dataclasses import asdict

from hypothesis import example, given
from hypothesis import strategies as st

from ldlm_monitor.service.cli.command_line import app
from ldlm_monitor.service.cli.command_table import NAMES
from ldlm_monitor.service.cli.flags import FollowFlags, hide_dash, shown_dash
from ldlm_monitor.service.cli.plain_words import plain

FLAGS = [f"--{name.replace('_', '-')}" for name in asdict(FollowFlags())]
OTHERS = "--no-companions --no-once --once=true --run=a -h -- -x a.log *.log - 5 0:0 json never"
WORDS = st.sampled_from([*FLAGS, *OTHERS.split(), "", *sorted(NAMES)[:2]])


@given(st.lists(WORDS, max_size=5))
@example(["a.log", "--once", "--no-companions", "--fail-on", "never", "--run", "a", "b", "-"])
@example(["--run", "a", "--run", "b"])
@example(["--rules", "a", "--rules", "b", "--log-format", "json"])
def test_what_is_plain_means_what_cyclopts_says(words: list[str]) -> None:
    if (read := plain(words)) is None:
        return
    files, flags = read
    command, bound, *_ = app.parse_args(hide_dash(words), exit_on_error=False, print_error=False)
    assert command is app.default_command
    assert shown_dash(bound.args) == files
    assert bound.kwargs.get("flags", FollowFlags()) == flags


def test_each_flag_can_be_plain() -> None:
    values = {"--fail-on": "never", "--log-format": "json", "--log-level": "info"}
    for flag in FLAGS:
        words = [[flag], [flag, values.get(flag, "a")]]
        assert any(plain(each) not in (None, ((), FollowFlags()), plain(["a"])) for each in words)


def test_commands_help_and_mistakes_are_not_plain() -> None:
    for words in (["report", "a.log"], ["--help"], ["--onec"], ["--run"], ["--log_format", "json"]):
        assert plain(words) is None
