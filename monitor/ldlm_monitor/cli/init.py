"""`ldlm-monitor init`: writes a configuration file for the logs that it finds in a folder."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ldlm_monitor.cli.flags import write_file
from ldlm_monitor.cli.parse import chunks
from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.text.format import counted

_NAME = "ldlm-monitor.toml"
_SECRET = "slack-webhook.url"
_CERTAIN = frozenset({".log", ".out", ".err"})  # suffixes of nothing but logs
_UNKNOWN = "of no known format yet: see ldlm-monitor parse --stats"
_MOST_KINDS = 50
"""Kinds of logs that are looked at: a choice; each costs reading a MiB, few folders have ten."""
_HEAD = 1024 * 1024
"""Bytes of a log whose format is looked at: settings of a launch and first steps are in them."""
_TEXT = """\
# Made by `ldlm-monitor init`: what the monitor watches when it is started in this folder.
# Every setting: https://github.com/ldlm-monitor/ldlm-monitor/blob/main/docs/configuration.md

files = [
{files}
]

# Your own limits for a pause; without them they are learned.
# [stall]
# limit_seconds = {{ evaluating = 900, checkpointing = 1800 }}

# The URL of a Slack webhook, in a file for its owner alone, or in LDLM_SLACK_WEBHOOK_URL.
{slack}
"""


class _LogKind(NamedTuple):
    """Logs of one kind in one folder: a pattern for them, their number, what the newest is."""

    pattern: str
    files: int
    form: str


def init(folder: Path = Path()) -> int:
    """Writes an ldlm-monitor.toml for the logs in a folder, and prints what it found.

    Args:
        folder: The folder that the monitor will be started in.
    """
    target = folder / _NAME
    if target.exists():
        remedy = "edit it, or move it away first"
        raise UsageError("is there already", where=str(target), remedy=remedy)
    found = list(_kinds(folder))
    for kind in found:
        print(f"{kind.pattern}: {counted(kind.files, 'file')}, the newest is {kind.form}")
    if not found:
        print("no log found here: the file names train_logs/*.log, which is waited for")
    # JSON's strings are TOML's.
    files = [f"    {json.dumps(kind.pattern, ensure_ascii=False)}, # {kind.form}" for kind in found]
    lines = "\n".join(files or ['    "train_logs/*.log",'])
    write_file(target, _TEXT.format(files=lines, slack=_slack(folder)), "init")
    print(f"{target} written; now: ldlm-monitor")
    return 0


def _slack(folder: Path) -> str:
    """The table of Slack, as a comment where there is no webhook; prints which."""
    table = ["[slack]", f'webhook_url_file = "{_SECRET}"']
    if (folder / _SECRET).is_file():
        print(f"Slack: {_SECRET} is used")
        return "\n".join(table)
    if os.environ.get("LDLM_SLACK_WEBHOOK_URL"):
        print("Slack: LDLM_SLACK_WEBHOOK_URL is used")
    else:
        print(f"Slack: no webhook; put its URL into {_SECRET}, and use the table [slack]")
    return "\n".join(f"# {line}" for line in table)


def _kinds(folder: Path) -> Iterator[_LogKind]:
    """Logs by folder and suffix; a text of no known format is no log unless its suffix says so."""
    from ldlm_monitor.source.input_patterns import resolve

    kinds: dict[tuple[Path, str], list[Path]] = {}
    for path in resolve([str(folder)], base=Path()).files():
        kinds.setdefault((path.parent, path.suffix), []).append(path)
    for (place, suffix), paths in list(kinds.items())[:_MOST_KINDS]:
        name = glob.escape(os.path.relpath(place, folder))
        form = _form(max(paths, key=lambda path: path.stat().st_mtime))
        if form or suffix in _CERTAIN:
            yield _LogKind(os.path.normpath(f"{name}/*{suffix}"), len(paths), form or _UNKNOWN)


def _form(path: Path) -> str:
    """The format of most numbers in the first MiB of a log; "" for none."""
    from ldlm_monitor.model.chunk import Origin
    from ldlm_monitor.parse import Parser
    from ldlm_monitor.parse.coverage import CoverageReader

    reader = CoverageReader(Parser(), str(path))
    for chunk in chunks(str(path)):
        reader.feed(chunk, Origin("init"), 0.0)
        if chunk.offset > _HEAD:
            break
    named = [name for name, _ in reader.finish().formats.most_common(1)]
    return named[0] if named else ""
