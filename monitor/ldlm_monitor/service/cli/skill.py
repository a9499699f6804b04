"""`skill install`: teaches agents of a project when and how to ask the monitor."""

from pathlib import Path

from cyclopts import App

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.service.cli.flags import write_file

_PACKAGED = Path(__file__).parent / "skills/ldlm-monitor"
skill = App(name="skill", help="Writes the skill by which agents use the monitor.")


@skill.command
def install(folder: Path = Path(".agents/skills"), *, force: bool = False) -> int:
    """Writes the skill ldlm-monitor (SKILL.md and the runbook) into a folder of skills.

    The form is that of agentskills.io, which most agents read.

    Args:
        folder: The agent's folder of skills, in a project or in the home folder.
        force: Replace what somebody has changed there.
    """
    place = folder / _PACKAGED.name
    texts = {
        place / path.relative_to(_PACKAGED): path.read_text("utf-8")
        for path in (_PACKAGED / "SKILL.md", *sorted((_PACKAGED / "references").glob("*.md")))
    }
    changed = [path for path, text in texts.items() if _differs(path, text)]
    if changed and not force:
        raise UsageError(
            "is another version, or was changed",
            where=str(changed[0]),
            remedy="replace it by --force, or name another folder",
        )
    for path, text in texts.items():
        write_file(path, text, "skill install", parents=True)
    print(place / "SKILL.md")
    return 0


def _differs(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() != text.encode()
    except FileNotFoundError:
        return False
    except OSError:  # a folder, or unreadable: `write_file` says what is wrong
        return False
