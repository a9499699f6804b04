"""`ldlm-monitor dashboards export DIR`: the Grafana boards as files."""

from pathlib import Path

from cyclopts import App

from ldlm_monitor.cli.flags import write_file

app = App(name="dashboards", help="Writes the Grafana boards into a folder.")
_PACKAGED = Path(__file__).parent.parent / "serve/dashboards"


@app.command
def export(folder: Path) -> int:
    """Writes every board as a JSON file to import or to provision; boards of these names go.

    Args:
        folder: Where to write them; made if it is not there.
    """
    for board in sorted(_PACKAGED.glob("*.json")):
        text = board.read_text("utf-8")
        write_file(folder / board.name, text, "dashboards export", parents=True)
        print(folder / board.name)
    return 0
