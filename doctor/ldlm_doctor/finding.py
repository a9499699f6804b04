"""What the doctor says: checks, findings, and the edits that mend them."""

from dataclasses import dataclass

from ldlm_monitor.model.records import Severity


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that the doctor looks for.

    ``why`` is the harm, ``source`` where that is documented or was measured, ``since`` the version
    of PyTorch or NCCL from which it holds (empty: any), ``fix`` what to do, in words.
    """

    id: str
    severity: Severity
    title: str
    why: str
    source: str
    since: str
    fix: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes ``start`` to ``end`` of ``path``, as it was read, become ``text``."""

    path: str
    start: int
    end: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Finding:
    """A check that found something: ``evidence`` is the text of the 1-based ``line``.

    ``detail`` says what is particular to this place; ``edits`` mend it, and are empty where no
    edit is known to be safe.
    """

    check: Check
    path: str
    line: int
    evidence: str
    detail: str = ""
    edits: tuple[Edit, ...] = ()
