"""python3 deploy/new_version.py VERSION DATE: writes both into all packages and CHANGELOG.md."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHANGELOG = ROOT / "CHANGELOG.md"
PACKAGES = sorted(ROOT.glob("*/ldlm_*/__init__.py"))


MEMBERS = sorted(ROOT.glob("*/pyproject.toml"))


def versioned(package: str, version: str) -> str:
    """The package's text, or that of a member's pyproject.toml, with another version."""
    package = re.sub(r'(?m)^((?:__version__|version) = )"[^"]+"', rf'\1"{version}"', package)
    return re.sub(r'(?<=")(ldlm-\w+(?:\[[\w,]+\])?==)[^"]+', rf"\g<1>{version}", package)


def released(changelog: str, version: str, date: str) -> str:
    """The changelog with its news under the version. Raises SystemExit if there are none."""
    head, heading, rest = changelog.partition("## [Unreleased]\n")
    news, following, older = rest.partition("\n## [")
    news = re.sub(r"^\s*To become \S+\n", "", news)
    if not heading or "- " not in news:
        raise SystemExit("CHANGELOG.md: nothing stands under [Unreleased]")
    section = f"{heading}\n## [{version}] - {date}\n\n{news.strip()}\n"
    return f"{head}{section}{following}{older}"


def main() -> None:
    """Reads all files and writes them; leaves all as they are if one cannot be used."""
    _, version, date = sys.argv
    if not re.fullmatch(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", version):
        raise SystemExit(f"{version} is no version such as 0.2.0 or 0.2.0rc1")
    texts = [
        *((path, versioned(path.read_text("utf-8"), version)) for path in (*PACKAGES, *MEMBERS)),
        (CHANGELOG, released(CHANGELOG.read_text("utf-8"), version, date)),
    ]
    for path, text in texts:
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
