"""Questions with known answers, asked by a client of the official SDK over stdio.

They are made of the truth files beside the logs, which people wrote before the tools were. Each
answer must be right, and what it cites must be in the line that it cites.
"""

import asyncio
import json
import re
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.service.mcp.cited_facts import MAX_ANSWER

mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")

CORPUS = Path(__file__).parents[2] / "together/corpus"
SMALL, ELASTIC, UPSTREAM = (CORPUS / each for each in ("small", "runs/elastic", "runs/upstream"))
# Quantities of which a curve over steps is kept.
CURVES = ("loss", "grad_norm", "learning_rate", "eval_loss", "step_seconds")
FAILED_RANK = {"kill.log": 1, "raise.log": 1, "segv.log": 2, "m_mbar.log": 2, "mn_kill1.log": 3}
MIXED = "llmc_and_nanogpt.log"  # lines of two trainers, whose steps go back


@dataclass(frozen=True)
class Question:
    """`tool` with `asked` must give, below `where`, an entry that has all of `holds`.

    `line` of the file `cited` is what it must cite; `shown` must be in that line.
    """

    tool: str
    asked: dict[str, Any]
    where: str
    holds: dict[str, Any]
    cited: str = ""
    line: int | None = None
    shown: str = ""


@dataclass
class Asked:
    """What came of the questions: the characters of all answers, and what was wrong."""

    characters: int = 0
    wrong: list[str] = field(default_factory=list)


def cited_line(cite: str) -> str:
    path, _, number = cite.rpartition(":")
    return Path(path).read_bytes().split(b"\n")[int(number) - 1].decode("utf-8", "replace")


def has(entry: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(
        has(entry[key], value) if isinstance(value, dict) else entry.get(key) == value
        for key, value in wanted.items()
    )


def small_questions() -> Iterator[Question]:
    truth = json.loads((SMALL / "truth.json").read_text("utf-8"))
    for name, known in truth.items():
        path, run = SMALL / name, Path(name).stem
        for sample in known["samples"]:
            line = sample["line"]
            text = " ".join(path.read_text("utf-8").split("\n")[line - 1].split())
            asked = {"path": str(path), "line": line, "before": 0, "after": 1}
            yield Question("log", asked, "lines", {"untrusted": text}, name, line, text[:20])
            step = sample["step"]
            for quantity in CURVES if step is not None and name != MIXED else ():
                if (value := sample["values"].get(quantity)) is not None:
                    asked = {"run": run, "quantity": quantity, "start": step, "end": step}
                    holds = {"step": step, "value": value}
                    shown = "{" if name.endswith("state.json") else str(step)  # where it begins
                    yield Question("values", asked, "values", holds, name, line, shown)
        for line, kind, severity in known["events"]:
            asked, holds = {"run": run, "kind": kind}, {"kind": kind, "severity": severity}
            yield Question("events", asked, "events", holds, name, line)
        for alert, rank in known["alerts"]:
            holds = {"alert": alert, "labels": {"run": run} | ({"rank": rank} if rank else {})}
            yield Question("alerts", {"run": run}, "changes", holds, name)
        for kind, rank in known["incident"]:
            yield Question(
                "incidents", {"run": run}, "incidents", {"cause": kind, "rank": rank}, name
            )
    # What is asked of all of them at once.
    asked = {"expression": 'ldlm_train_loss{run="fairseq"} == 16.5'}
    holds = {"metric": {"__name__": "ldlm_train_loss", "run": "fairseq"}}
    yield Question("query", asked, "data", holds, "fairseq.log", 3, "16.5")
    yield Question("changes", {"since": 0}, "incidents", {"run": "cuda_oom"}, "cuda_oom.log", 1)
    asked = {"path": str(SMALL / "cuda_oom.log"), "find": "out of memory", "after": 1}
    yield Question("log", asked, "lines", {}, "cuda_oom.log", 5, "CUDA out of memory")
    asked = {"baseline": "fairseq", "candidate": "fairseq"}
    yield Question("compare", asked, "steps", {"step": 20, "change": 0.0}, "fairseq.log", 3, "16.5")


def elastic_questions() -> Iterator[Question]:
    for name, rank in FAILED_RANK.items():
        yield Question("incidents", {"run": Path(name).stem}, "incidents", {"rank": rank}, name)
    yield Question("runs", {"run": "rs"}, "runs", {"run": "rs"}, "rs.log")


def upstream_questions() -> Iterator[Question]:
    labelled = runpy.run_path(str(CORPUS / "test_upstream_runs.py"))["EXPECTED"]
    index = json.loads((UPSTREAM / "index.json").read_text("utf-8"))
    for name, alerts in labelled.items():
        (log,) = (UPSTREAM / name / "train_logs").glob("*.log")
        run = re.sub(r"_node\d+$", "", log.stem)
        for alert, state, line in alerts:
            # Two lines of one second show the signal: which is cited, what is read beside decides.
            exact = line if line > 0 and alert != "JobKilled" else None
            holds = {"alert": alert, "state": state}
            yield Question("alerts", {"run": run}, "changes", holds, log.name, exact)
        rows = UPSTREAM / name / "saved/training_log.jsonl"
        known = index[name]["files"]["saved/training_log.jsonl"]
        last = {"path": str(rows), "before": 1, "after": 0}
        shown = f'"step": {known["last_step"]}'
        yield Question("log", last, "lines", {}, rows.name, known["lines"], shown)
        yield Question("runs", {"run": run}, "runs", {"run": run}, "")


def judged(question: Question, answer: dict[str, Any]) -> str:
    """What is wrong with an answer; "" if nothing is."""
    found = answer[question.where]
    entries = found["result"] if question.where == "data" else found
    for entry in entries:
        if not has(entry, question.holds):
            continue
        cites = entry["cite"] if isinstance(entry["cite"], list) else [entry["cite"]]
        for cite in filter(None, cites):
            text = cited_line(cite)
            place = f"{question.cited}:{question.line}" if question.line else f"{question.cited}:"
            if place in f"/{cite}" and question.shown in " ".join(text.split()) and text.strip():
                return ""
    return f"{question}: {json.dumps(answer)[:600]}"


async def ask(logs: list[Path], questions: list[Question]) -> Asked:
    from mcp import StdioServerParameters
    from mcp.client.client import Client
    from mcp.client.stdio import stdio_client

    words = ["-m", "ldlm_monitor", "mcp", *map(str, logs)]
    server = StdioServerParameters(command=sys.executable, args=words)
    came = Asked()
    async with Client(stdio_client(server)) as client:
        for question in questions:
            result = await client.call_tool(question.tool, question.asked)
            text = result.content[0].text
            came.characters += len(text)
            wrong = text if result.is_error else judged(question, json.loads(text))
            came.wrong += [wrong] if wrong else []
    return came


def test_questions_about_small_logs_are_answered_with_the_lines_that_show_it() -> None:
    questions = [*small_questions()][::3]  # all of them in the long run
    names = json.loads((SMALL / "truth.json").read_text("utf-8"))
    came = asyncio.run(ask([SMALL / name for name in names], questions))
    assert not came.wrong, "\n".join(came.wrong)
    assert len(questions) > 40
    # `changes` asks about all logs; how far its answer is cut depends on the length of their paths.
    assert came.characters < MAX_ANSWER + 500 * (len(questions) - 1)


@pytest.mark.long
def test_a_hundred_questions_about_forty_logs_cost_a_twentieth_of_their_size() -> None:
    characters = asked = size = 0
    logs = {
        "small": [SMALL / name for name in json.loads((SMALL / "truth.json").read_text("utf-8"))],
        "elastic": sorted(ELASTIC.glob("*.log")),
        "upstream": [*UPSTREAM.glob("*/train_logs/*.log"), *UPSTREAM.glob("*/saved/*log.jsonl")],
    }
    questions = {"small": small_questions(), "elastic": elastic_questions()}
    questions["upstream"] = upstream_questions()
    for folder, paths in logs.items():
        posed = [*questions[folder]]
        came = asyncio.run(ask(paths, posed))
        assert not came.wrong, "\n".join(came.wrong)
        characters, asked = characters + came.characters, asked + len(posed)
        size += sum(path.stat().st_size for path in paths)
    assert sum(map(len, logs.values())) >= 40
    assert asked > 100
    assert characters < size / 20, (characters, size)
