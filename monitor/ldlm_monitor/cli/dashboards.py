"""`ldlm-monitor dashboards export DIR`: the Grafana boards as files."""

from pathlib import Path

from cyclopts import App

from ldlm_monitor.cli.flags import write_file
from ldlm_monitor.model.errors import UsageError

app = App(name="dashboards", help="Writes the Grafana boards into a folder.")
_PACKAGED = Path(__file__).parent.parent / "serve/dashboards"


@app.command
def export(folder: Path) -> int:
    """Writes every board as a JSON file to import or to provision; boards of these names go.

    Args:
        folder: Where to write them; made if it is not there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot be made ({error.strerror})",
            where=str(folder),
            remedy="name a folder that you may write to",
        ) from error
    for board in sorted(_PACKAGED.glob("*.json")):
        write_file(folder / board.name, board.read_text("utf-8"), "dashboards export")
        print(folder / board.name)
    return 0
