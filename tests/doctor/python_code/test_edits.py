"""Edits keep every byte that they need not change, whatever the layout of the code."""

import ast

from hypothesis import given
from hypothesis import strategies as st

from ldlm_doctor.model import Kind, SourceFile
from ldlm_doctor.python_code.module import read
from ldlm_doctor.python_code.source_text import keyword_added, line_after, line_before
from tests.doctor.python_code.code_audits import applied, findings

SPACES = st.sampled_from(["", " ", "  "])
GAPS = st.sampled_from(
    ["", " ", "\n    ", "  # a comment, (with) signs\n    ", "\n\n    ", " \\\n  "]
)
VALUES = st.sampled_from(
    [
        "1",
        "(2)",
        "((3))",
        '"#, )"',
        "'ü'",
        "f(4, )",
        "[5, 6]",
        "lambda: 0",
        "x if y else z",
        "(\n7\n)",
    ]
)


@st.composite
def argument_lists(draw: st.DrawFn) -> str:
    """The arguments of a call in some layout, with or without a comma at the end."""
    parts = []
    for at in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(["", f"a{at}=", f"a{at} = "])) if at else ""
        if parts and "=" in parts[-1] and not name:
            name = f"a{at}="
        parts.append(f"{draw(GAPS)}{name}{draw(VALUES)}{draw(SPACES)}")
    end = draw(st.sampled_from(["", ","]))
    return ",".join(parts) + end + draw(GAPS)


def module_of(content: bytes):
    return read(SourceFile("m.py", Kind.PYTHON, content))


def keywords(content: bytes) -> list[str | None]:
    (call,) = [
        node
        for node in ast.walk(ast.parse(content))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "make"
    ]
    return [keyword.arg for keyword in call.keywords]


@given(argument_lists(), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_an_argument_is_added_to_a_call_in_any_layout(
    arguments: str, newline: str, has_mark: bool, is_last: bool
) -> None:
    text = f"é = 1\nresult = make({arguments})" + ("" if is_last else "  # after\nother = 2\n")
    content = text.replace("\n", newline).encode("utf-8-sig" if has_mark else "utf-8")
    module = module_of(content)
    (call,) = [c for c in module.calls if getattr(c.func, "id", "") == "make"]
    before = keywords(content)

    # two findings at one call, each with an edit of its own
    edits = (*keyword_added(module, call, "new=1"), *keyword_added(module, call, "newer=2"))
    after = applied(content, edits)

    assert sorted(map(str, keywords(after))) == sorted(map(str, [*before, "new", "newer"]))
    kept = after
    for edit in edits:
        assert edit.start == edit.end, "nothing is taken away"
        kept = kept.replace(edit.text, b"", 1)
    assert kept == content


def test_an_argument_comes_on_a_line_of_its_own_where_the_others_do() -> None:
    content = b"make(\n    a=1,  # one\n    b=2,  # two\n)\n"
    module = module_of(content)
    after = applied(content, keyword_added(module, module.calls[0], "c=3"))
    assert after == b"make(\n    a=1,  # one\n    b=2,  # two\n    c=3,\n)\n"


def test_an_argument_comes_before_a_comment_that_follows_without_a_comma() -> None:
    content = b"make(\n    a=1,\n    b=2  # two\n)\n"
    module = module_of(content)
    after = applied(content, keyword_added(module, module.calls[0], "c=3"))
    assert after == b"make(\n    a=1,\n    b=2, c=3  # two\n)\n"


def test_statements_are_added_around_one_that_stands_alone() -> None:
    content = b"def f():\r\n\tg()  # why\r\n\treturn 1"
    module = module_of(content)
    statement = module.functions[0].body[0]
    assert applied(content, line_before(module, statement, "a()")) == (
        b"def f():\r\n\ta()\r\n\tg()  # why\r\n\treturn 1"
    )
    assert applied(content, line_after(module, statement, "b()")) == (
        b"def f():\r\n\tg()  # why\r\n\tb()\r\n\treturn 1"
    )


def test_no_statement_is_added_beside_others_on_a_line() -> None:
    module = module_of(b"if a: g(); h()\n")
    first, second = (module.statement(call) for call in module.calls)
    assert line_before(module, first, "x()") == ()
    assert line_after(module, first, "x()") == ()
    assert line_before(module, second, "x()") == ()


WRAP = """# coding: {coding}
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

name = "é"
def train(model, loader, optimizer):
    model = DDP(model)
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""


def test_a_file_in_another_encoding_is_read_but_not_edited() -> None:
    for coding, is_edited in (("utf-8", True), ("latin-1", False), ("cp1252", False)):
        content = WRAP.format(coding=coding).encode(coding)
        (found,) = findings({"train.py": content})
        assert found.check.id == "ddp-gradient-as-bucket-view"
        assert bool(found.edits) is is_edited
