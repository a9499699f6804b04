"""The network (tier 4): which machine most of the broken connections have in common."""

from __future__ import annotations

from collections import Counter

from ldlm_monitor.incidents.clues import Clue, Tier
from ldlm_monitor.incidents.evidence import Evidence
from ldlm_monitor.incidents.verdict import Verdict


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


def _near(clue: Clue) -> str:
    return clue.host or clue.node or ""


def _far(clue: Clue) -> str:
    """`10.4.0.11<41232>` without its port, which is another one for each connection."""
    return str(clue.fields.get("peer") or "").partition("<")[0]
