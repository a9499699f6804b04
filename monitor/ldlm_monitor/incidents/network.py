"""The network (tier 4): which machine most of the broken connections have in common."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ldlm_monitor.incidents.clues import Clue, Tier
from ldlm_monitor.incidents.evidence import Evidence
from ldlm_monitor.incidents.verdict import Verdict

_NAMES_A_PEER: Final = (
    "nccl_peer_closed",
    "nccl_connect_failed",
    "nccl_async_error",
    "nccl_api_error",
)


def broken_link(evidence: Evidence) -> Verdict | None:
    """The end that is on most of the broken links; a single link names neither of its ends."""
    clues = [clue for fold in evidence.of_tier(Tier.NETWORK) for clue in fold.clues]
    if not clues:
        return None
    first = min(clues, key=lambda each: each.order)
    links = {(_near(clue), _far(clue)) for clue in clues}
    votes = Counter(end for link in links for end in link if end)
    top = sorted(votes.items(), key=lambda item: (-item[1], item[0]))[:2]
    clear = bool(top) and top[0][1] > 1 and (len(top) == 1 or top[0][1] > top[1][1])
    own = {clue.host or clue.node for clue in clues if clue.kind == "nccl_ib_async_fatal"} - {None}
    if clear:
        host, why = top[0][0], f"{top[0][0]} is an end of {top[0][1]} of {len(links)} broken links"
    elif len(own) == 1:
        host = str(next(iter(own)))
        why = f"its network adapter reports a fault of its own: {host}"
    else:
        host = first.host or first.node or ""
        why = "the first to report a broken link; the fault may be at either end"
    ranks = evidence.roster.on_host(host, None)
    return Verdict(
        tier=Tier.NETWORK,
        kind=first.kind,
        message=first.message,
        confidence="probable" if clear or len(own) == 1 else "weak",
        why=(why,),
        ranks=frozenset(ranks),
        clue=first,
        host=host or None,
    )


def lost_peer(evidence: Evidence) -> Verdict | None:
    """The machine that several others say has gone, and that says nothing of the kind itself."""
    clues = [
        clue
        for kind in _NAMES_A_PEER
        for fold in evidence.of_kind(kind)
        for clue in fold.clues
        if _far(clue)
    ]
    links = {(clue.rank, _near(clue), _far(clue)) for clue in clues}
    votes = Counter(far for _, _, far in links)
    here = {near for _, near, _ in links}
    gone = sorted((-count, far) for far, count in votes.items() if far not in here)
    if not gone or gone[0][0] > -2 or (len(gone) > 1 and gone[1][0] == gone[0][0]):
        return None
    count, host = -gone[0][0], gone[0][1]
    first = min((clue for clue in clues if _far(clue) == host), key=lambda each: each.order)
    return Verdict(
        tier=Tier.NETWORK,
        kind=first.kind,
        message=f"{host} closed its connections, or cannot be reached",
        confidence="weak",
        why=(f"{count} others name {host} as the peer that they lost; it tells nothing itself",),
        ranks=frozenset(evidence.roster.on_host(host, None)),
        clue=first,
        host=host,
    )


def _near(clue: Clue) -> str:
    return clue.host or clue.node or ""


def _far(clue: Clue) -> str:
    """`10.4.0.11<41232>` without its port, which is another one for each connection."""
    told = str(clue.fields.get("peer") or clue.fields.get("last_error") or "")
    head, bracket, _ = told.partition("<")
    return head.rpartition(" ")[2] if bracket else ""
