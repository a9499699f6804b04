"""What hatchling asks for beside pyproject.toml: page, members, and the compiled part."""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

LIBRARY = Path("ldlm_monitor/base/libldlm.native")
"""The compiled part in the package. By its name no module of Python's."""
FLAGS = (
    "-O2",
    "-std=c++17",
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-rtti",
    "-fPIC",
    "-shared",
)
STATIC = ("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL", "-s")
"""Flags of GNU's linker: what any Linux of the same C library loads, exporting our names alone."""


class Metadata(MetadataHookInterface):
    """Sets `readme`, `dependencies` and `optional-dependencies`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling with the project's metadata."""
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": package_page(Path(self.root), metadata["urls"]["Source"]),
        }

        def required(names: list[str]) -> list[str]:
            return [requirement(name, Path(self.root), metadata["version"]) for name in names]

        metadata["dependencies"] = required(self.config["dependencies"])
        metadata["optional-dependencies"] = {
            extra: required(names) for extra, names in self.config["extras"].items()
        }


class Compiled(BuildHookInterface):
    """Compiles `native/` where a C++ compiler is, unless LDLM_NATIVE=0; else Python does all.

    CXX names the compiler. A wheel with the compiled part is one of its platform.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it makes a wheel; `version` is `editable` for a checkout's."""
        library = compiled(Path(self.root))
        if library is None or version == "editable":
            return
        build_data["tag"] = f"py3-none-{platform_tag()}"
        build_data["pure_python"] = False
        build_data["force_include"][str(library)] = str(LIBRARY)


def platform_tag() -> str:
    """The tag of what is compiled here: it needs the C library alone, of this version or newer."""
    kind, version = platform.libc_ver()
    here = re.sub(r"\W", "_", sysconfig.get_platform())
    if kind != "glibc":
        return here
    return here.replace("linux", f"manylinux_{version.replace('.', '_')}", 1)


def compiled(root: Path) -> Path | None:
    """The compiled part, made anew if a source is newer; None without it."""
    compiler = shutil.which(os.environ.get("CXX") or "c++") or shutil.which("g++")
    if compiler is None or os.environ.get("LDLM_NATIVE") == "0":
        return None
    library, sources = root / "monitor" / LIBRARY, sorted((root / "native").glob("*.[ch]*"))
    newest = max(each.stat().st_mtime_ns for each in sources)
    if library.exists() and library.stat().st_mtime_ns >= newest:
        return library
    # In place in one step: a process may have the old one loaded.
    made = library.with_suffix(f".{os.getpid()}")
    static = STATIC if sys.platform == "linux" else ()
    units = [each for each in sources if each.suffix == ".cpp"]
    command = [compiler, *FLAGS, *static, "-o", made, *units]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        made.replace(library)
        return library
    made.unlink(missing_ok=True)
    library.unlink(missing_ok=True)
    why = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
    print(f"ldlm-monitor: without the compiled part: {compiler} failed: {why}", file=sys.stderr)
    return None


def package_page(root: Path, source: str) -> str:
    """README with links and pictures that lead into the repository: an index has no files."""
    text = (root / "README.md").read_text("utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{source}/raw/main/", text)
    return re.sub(r"(?<!!)(\[[^\]!]*\]\()(?!https?:|#)", rf"\1{source}/blob/main/", text)


def requirement(name: str, root: Path, version: str) -> str:
    """A member of the workspace (`ldlm-doctor[extra]`) by its folder in a checkout.

    In a release (LDLM_RELEASE is set, or this is a source distribution) it is the same version
    as ldlm-monitor. Anything else stays as it is.
    """
    member = re.match(r"ldlm-(\w+)", name)
    folder = root / member[1] if member else None
    if folder is None or not (folder / "pyproject.toml").is_file():
        return name
    if os.environ.get("LDLM_RELEASE") or (root / "PKG-INFO").is_file():
        return f"{name}=={version}"
    return f"{name} @ {folder.as_uri()}"


if __name__ == "__main__":  # setup.sh: pip would not show what the compiler says
    compiled(Path(__file__).parent)
