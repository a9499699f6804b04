"""The parts of an incident that views show: title, cause, symptoms, excerpt of lines, advice."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final, TypeAlias

from ldlm_monitor.base.incident_view import CollectiveView, ExcerptView, RootView, SymptomView
from ldlm_monitor.base.text.format import compressed, counted, mesh_text, names_of
from ldlm_monitor.base.text.sanitize import shorten
from ldlm_monitor.base.text.yaml_loader import packaged_yaml
from ldlm_monitor.judge.incidents.clues import Clue, Tier
from ldlm_monitor.judge.incidents.communication import Collective
from ldlm_monitor.judge.incidents.folded_evidence import STACKS, WORKER_FAILED, Evidence, Fold
from ldlm_monitor.judge.incidents.root_cause import Judgement
from ldlm_monitor.judge.incidents.roster import RootCause

SYMPTOMS: Final = 40  # symptoms in a view. A choice: as many as a screen shows; more hide the cause
EXCERPT: Final = 6  # lines of an excerpt. A choice: more do not fit on a screen with the incident
_TEXT: Final = 300  # characters of a line or message. A choice: more fill screens, less cuts causes
_TITLE: Final = 120  # characters of the cause in a title. A choice: more need a second line


Meshes: TypeAlias = Mapping[int, Mapping[str, int]]
"""By rank: its coordinates in the dimensions of parallelism."""


def root_view(verdict: RootCause, evidence: Evidence, meshes: Meshes) -> RootView:
    """The root cause as views show it."""
    clue, rank = verdict.clue, verdict.rank
    facts = evidence.roster.facts.get(rank) if rank is not None else None
    return RootView(
        tier=verdict.tier.name.lower(),
        kind=verdict.kind,
        message=verdict.message,
        rank=rank,
        ranks=compressed(verdict.ranks),
        node=(clue.node if clue else None) or (facts.node if facts else None),
        host=verdict.host or (clue.host if clue else None) or (facts.host if facts else None),
        local_rank=facts.local_rank if facts else None,
        pid=(clue.pid if clue else None) or (facts.pid if facts else None),
        at=clue.effective if clue else evidence.began,
        position=clue.position if clue else None,
        why=verdict.why,
        mesh=mesh_text(_shared([meshes.get(each, {}) for each in sorted(verdict.ranks)])),
    )


def _shared(meshes: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The coordinates that all of them have in common."""
    first = meshes[0] if meshes else {}
    return {
        name: number
        for name, number in first.items()
        if all(each.get(name) == number for each in meshes)
    }


def cause_text(verdict: RootCause, evidence: Evidence, meshes: Meshes) -> str:
    """Cause, ranks and machine as one phrase."""
    message = shorten(" ".join((verdict.message or verdict.kind).split()), _TITLE)
    if not message.endswith(".."):
        message = message.removesuffix(".")
    if verdict.tier is Tier.UNATTRIBUTED:
        return f"{message} (cause unknown)"
    if verdict.tier is Tier.SILENCE or not verdict.ranks:
        return message + _place(verdict, evidence, meshes)
    if verdict.kind == STACKS:  # what a rank does is no fault that lies on it
        verb = "is" if verdict.rank is not None else "are"
        return f"{names_of(verdict.ranks)} {verb} {message}{_place(verdict, evidence, meshes)}"
    whose = f" on {names_of(verdict.ranks)}"
    return message.removesuffix(whose) + whose + _place(verdict, evidence, meshes)


def title(
    judgement: Judgement,
    evidence: Evidence,
    meshes: Meshes,
    last_step: int | None,
    epoch: float | None,
) -> str:
    """The cause, its effects, the step: `... on rank 3 (gpu4) -> timeout on 7 ranks at step 9`.

    The epoch instead of a step that begins again with each.
    """
    effects = list(_effects(judgement.verdict, evidence))
    cause = cause_text(judgement.verdict, evidence, meshes)
    at = "" if last_step is None or re.search(r"\bstep \d", cause) else f" at step {last_step}"
    if epoch is not None:
        at = f" in epoch {epoch:g}"
    return (f"{cause} -> {', '.join(effects)}" if effects else cause) + at


def _effects(verdict: RootCause, evidence: Evidence) -> Iterator[str]:
    timed: set[int] = set()
    lost: set[int] = set()
    for rank, facts in evidence.roster.facts.items():
        if rank in verdict.ranks or not facts.waited:
            continue
        (timed if facts.timed_out else lost).add(rank)
    if timed:
        yield f"timeout on {counted(len(timed), 'rank')}"
    if lost:
        yield f"lost peers on {counted(len(lost), 'rank')}"


def _place(verdict: RootCause, evidence: Evidence, meshes: Meshes) -> str:
    view = root_view(verdict, evidence, meshes)
    machine = view.host or (f"node {view.node}" if view.node else "")
    known = [each for each in (view.mesh, machine) if each and each not in verdict.message]
    return f" ({', '.join(known)})" if known else ""


def collective_view(collective: Collective, silent: frozenset[int]) -> CollectiveView:
    """The collective that hangs as views show it."""
    timeout = collective.timeout_ms
    return CollectiveView(
        op=collective.op,
        seq=collective.seq,
        group=collective.name or collective.group,
        timeout_seconds=None if timeout is None else timeout / 1000,
        began_at=collective.began,
        waiting=compressed(collective.calls),
        missing=compressed(silent),
    )


def symptoms(evidence: Evidence) -> tuple[SymptomView, ...]:
    """The most frequent events in order of time; causes are merged by text, others by kind."""
    merged: dict[tuple[str, str, str], list[Fold]] = {}
    for fold in _by_time(evidence):
        text = fold.first.message if fold.role in ("root", "evidence") else ""
        merged.setdefault((fold.kind, fold.role, text), []).append(fold)
    found = [
        SymptomView(
            kind=kind,
            role=role,
            count=sum(fold.count for fold in folds),
            ranks=compressed(rank for fold in folds for rank in fold.ranks),
            message=folds[0].first.message[:_TEXT],
            position=folds[0].first.position,
        )
        for (kind, role, _), folds in merged.items()
    ]
    frequent = sorted(found, key=lambda each: -each.count)[:SYMPTOMS]
    return tuple(each for each in found if each in frequent)


def excerpt(verdict: RootCause, evidence: Evidence) -> tuple[ExcerptView, ...]:
    """The cause's line, up to 3 more of 2 ranks that share it, then its first consequences.

    These are a timeout, a lost peer and a death. Further ranks mostly log the same as the two.
    """
    clues: list[Clue] = [verdict.clue] if verdict.clue is not None else []
    folds = _by_time(evidence)
    logged = [clue for fold in folds for clue in fold.clues if clue.severity != "info"]
    shared = sorted(verdict.ranks)[:2]
    clues += [clue for rank in shared for clue in logged if clue.rank == rank][:3]
    serious = [fold for fold in folds if fold.first.severity != "info"]
    clues += [fold.first for fold in serious if "timeout" in fold.meaning.words][:1]
    clues += [fold.first for fold in serious if fold.role == "victim"][:1]
    clues += [fold.first for fold in serious if fold.role == "death"][:1]
    shown: dict[str, ExcerptView] = {}
    for clue in clues:
        view = ExcerptView(rank=clue.rank, text=_line(clue), position=clue.position)
        shown.setdefault(clue.message, view)
    return tuple(shown.values())[:EXCERPT]


def _by_time(evidence: Evidence) -> list[Fold]:
    return sorted(evidence.folds.values(), key=lambda fold: (fold.first.order, fold.kind))


def _line(clue: Clue) -> str:
    place = clue.fields.get("file")
    where = f"  [{place}:{clue.fields.get('line')}]" if place and clue.role == "root" else ""
    return str(clue.fields.get("text") or clue.message)[:_TEXT] + where


def action(verdict: RootCause) -> str:
    """The advice of `data/actions.yml` for a cause; "" if the file has none for it."""
    actions = _actions()
    if verdict.tier is Tier.UNATTRIBUTED and verdict.kind == WORKER_FAILED:
        return actions["unattributed"]
    code = verdict.clue.fields.get("exitcode") if verdict.clue is not None else None
    named = (f"{verdict.kind} {code}", verdict.kind, verdict.tier.name.lower())
    return next((actions[name] for name in named if name in actions), "")


@cache
def _actions() -> dict[str, str]:
    loaded = packaged_yaml(__package__, "data/actions.yml")
    return {str(kind): str(text).strip() for kind, text in loaded.items()}
