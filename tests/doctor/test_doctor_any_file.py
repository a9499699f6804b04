"""Whatever stands in a file, the doctor reads it, and what it fixes is valid and fixed."""

from hypothesis import example, given
from hypothesis import strategies as st

from ldlm_doctor.audit import audit
from ldlm_doctor.model import Kind, Project, SourceFile
from ldlm_doctor.repair import plan, verified
from tests.doctor.doctor_cases import HERE

LINES = sorted(
    {
        line
        for path in sorted(HERE.rglob("*.s*"))
        if path.is_file()
        for line in path.read_text().splitlines()
        if not line.startswith("# !!")
    }
)
SCRIPTS = st.lists(st.sampled_from(LINES), max_size=12).map("\n".join)
PIECES = st.sampled_from(
    ["export ", "NCCL_TIMEOUT=", "1", "$", "${", "}", "(", ")", "'", '"', "\\", "\n", "\r\n",
     "| tee ", "torchrun a.py", "<<E", "if ", "then ", "fi", ";", "é", "\0", "a: ", "[", "- ",
     "#", "`", "=()"]
)  # fmt: skip


@given(st.sampled_from(list(Kind)), st.lists(PIECES, max_size=25).map("".join))
@example(Kind.SHELL, "(" * 5000)
@example(Kind.SHELL, "(" * 2000 + "a" + ")" * 2000)
@example(Kind.SHELL, "echo " + "$(echo " * 1500 + ")" * 1500)
@example(Kind.SHELL, "A=" + "${B:-" * 1500 + "}" * 1500 + "\nexport A=$((" + "(" * 90 + "))")
@example(Kind.SHELL, "$(" * 3000 + "export NCCL_TIMEOUT=1")
@example(Kind.YAML, "[" * 5000)
@example(Kind.YAML, "a: &a [*a]")
@example(Kind.YAML, "? [a, b]\n: {zero_optimization: {? {a: b} : c}}\n? {c: d}\n")
@example(Kind.JSON, '{"zero_optimization": [], "fp16": {"enabled": [1]}, "bf16": null}')
@example(Kind.JSON, '{"zero_optimization": {"stage": {}}, "train_batch_size": 1e400}')
@example(Kind.ENVIRONMENT, "=\n\x00=1\nA=")
def test_no_file_is_too_strange_to_be_read(kind: Kind, text: str) -> None:
    project = Project((SourceFile("file", kind, text.encode()),))
    for finding in audit(project):
        assert 1 <= finding.line <= text.count("\n") + 1
        for edit in finding.edits:
            assert 0 <= edit.start <= edit.end <= len(text.encode())


@given(SCRIPTS)
def test_any_script_is_fixed_in_one_go_and_stays_a_script(text: str) -> None:
    file = SourceFile("run.sh", Kind.SHELL, text.encode())
    for repair in plan(Project((file,)), audit).repairs:
        assert verified(file, repair.after)
        fixed = Project((SourceFile("run.sh", Kind.SHELL, repair.after),))
        assert plan(fixed, audit).repairs == ()
        was = [finding.check.id for finding in audit(Project((file,)))]
        now = [finding.check.id for finding in audit(fixed)]
        assert all(now.count(check) <= was.count(check) for check in now)
