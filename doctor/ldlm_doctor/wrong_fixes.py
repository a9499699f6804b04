"""Scripts that rewrite a trainer's source with a change that is known not to work."""

from __future__ import annotations

from collections.abc import Iterator

import re2

from ldlm_doctor.bash_script import Script
from ldlm_doctor.bash_syntax import text_of, within
from ldlm_doctor.finding import Check, Finding

WRONG_FIX = Check(
    "patch-known-wrong",
    "error",
    "A script patches source code with a change that does not work",
    "It replaces text without looking at what the code does there, and reports success whether or "
    "not anything was replaced.",
    "each tried on MM-LDLM's trainer with PyTorch 2.13",
    "",
    "Do what is said here instead; ldlm-monitor doctor shows each change, and can take it back.",
)
CHECKS = (WRONG_FIX,)

_REWRITES = re2.compile(r"\.write\(|\.write_text\(|writelines\(")
_KNOWN = tuple(
    (re2.compile(pattern), said)
    for pattern, said in (
        (
            r"find_unused_parameters\s*=\s*False",
            (
                "find_unused_parameters=False fails at the second step where a mode freezes "
                "parameters: freeze them before DDP wraps the model, then it can be False"
            ),
        ),
        (
            r"static_graph\s*=\s*True",
            "static_graph=True fails at the first change of mode: leave it out",
        ),
        (
            r"\[\s*:\s*-\s*keep_last_n\s*\]",
            (
                "the rotation takes eval-7 or 2026-01-29 for checkpoints, deletes them, and with 0 "
                "deletes nothing: match step_[0-9]+ exactly, keep at least 1, spare what was "
                "resumed from"
            ),
        ),
        (
            r"\\1,\s*(?:\\n)?\s*fused\s*=\s*True",
            (
                "the pattern ends at the first parenthesis and puts fused=True into tuple(...), a "
                "TypeError: give fused=True to AdamW itself"
            ),
        ),
        (
            r"persistent_workers\s*=\s*True",
            (
                "persistent_workers=True with num_workers=0 is a ValueError: give it only where "
                "there are workers"
            ),
        ),
        (
            r"checkpoint\(\s*self\.mmdit\s*,\s*\(",
            "MMDiT.forward takes keywords alone: checkpoint each block, with use_reentrant=False",
        ),
        (
            r"1(?:\.0)?\s*-\s*(?:F\.|torch\.)?(?:nn\.functional\.)?cosine_similarity",
            (
                "1 - cos is the normalised MSE times D/2, a hidden change of the loss weight: "
                "scale the "
                "weight by 2/D, or predict v with a plain MSE"
            ),
        ),
    )
)
_SED = re2.compile(
    r"(NCCL_TIMEOUT=[0-9]+|NCCL_BLOCKING_WAIT=0|find_unused_parameters=False)[^/|]*[/|][a-z]*['\"]?$"
)
_SED_SAID = {
    "NCCL_TIMEOUT": "NCCL_TIMEOUT is read by nothing: remove it, and give init_process_group a "
    "timeout",
    "NCCL_BLOCKING_WAIT": "where TORCH_NCCL_BLOCKING_WAIT=1 is set it wins: remove both",
    "find_unused_parameters": _KNOWN[0][1],
}


def patches(script: Script, path: str) -> Iterator[Finding]:
    """Here-documents that write files, and `sed -i`, with a change that is known."""
    for body in within(script.root, "heredoc_body"):
        text = text_of(body)
        if not _REWRITES.search(text):
            continue
        for pattern, said in _KNOWN:
            found = pattern.search(text)
            if found:
                at = body.start_byte + len(text[: found.start()].encode())
                yield Finding(WRONG_FIX, path, script.line_at(at), script.line_text(at), said)
    for command in script.commands:
        if command.texts[:1] != ("sed",) or not any(t.startswith("-i") for t in command.texts):
            continue
        for word in command.words[1:]:
            found = _SED.search(word.text)
            if found and word.text.lstrip().startswith("s"):
                name = str(found.group(1)).partition("=")[0]
                line, shown = script.line_at(word.start), script.line_text(word.start)
                yield Finding(WRONG_FIX, path, line, shown, _SED_SAID[name])
