"""What hatchling asks for beside pyproject.toml: page, members, and the compiled part."""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
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

    A checkout's library is kept in place while no source is newer. A wheel gets one of its own, and
    is one of its platform.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it makes a wheel; `version` is `editable` for a checkout's."""
        if version == "editable":
            compile_in_place(Path(self.root))
            return
        self._folder = tempfile.TemporaryDirectory()
        library = Path(self._folder.name, LIBRARY.name)
        if not compiled(Path(self.root), library):
            return
        build_data["tag"] = f"py3-none-{platform_tag()}"
        build_data["pure_python"] = False
        build_data["force_include"][str(library)] = str(LIBRARY)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling when the wheel is made."""
        if version != "editable":
            self._folder.cleanup()


def platform_tag() -> str:
    """The tag of what is compiled here: it needs the C library alone, of this version or newer."""
    kind, version = platform.libc_ver()
    here = re.sub(r"\W", "_", sysconfig.get_platform())
    if kind != "glibc":
        return here
    return here.replace("linux", f"manylinux_{version.replace('.', '_')}", 1)


def compile_in_place(root: Path) -> None:
    """Make a checkout's library anew if a source is newer, and remove one that fails to compile."""
    library = root / "monitor" / LIBRARY
    newest = max((each.stat().st_mtime_ns for each in sources(root)), default=0)
    if library.exists() and library.stat().st_mtime_ns >= newest:
        return
    # In place in one step: a process may have the old one loaded.
    made = library.with_suffix(f".{os.getpid()}")
    if compiled(root, made):
        made.replace(library)
    elif os.environ.get("LDLM_NATIVE") != "0":
        library.unlink(missing_ok=True)


def compiled(root: Path, library: Path) -> bool:
    """Compile the sources below `root` to `library`; False where that is not wanted, or fails."""
    if os.environ.get("LDLM_NATIVE") == "0":
        return False
    command, why = compiler()
    units = [each for each in sources(root) if each.suffix == ".cpp"]
    if not units:
        why = f"no sources in {root / 'native'}"
    if not why:
        static = STATIC if sys.platform == "linux" else ()
        done = subprocess.run(
            [*command, *FLAGS, *static, "-o", library, *units],
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        if done.returncode == 0:
            return True
        library.unlink(missing_ok=True)
        lines = done.stderr.splitlines()
        said = next((line for line in lines if "error" in line), "no reason given")
        why = f"{shlex.join(command)} failed: {said}"
    print(f"ldlm-monitor: without the compiled part: {why}", file=sys.stderr)
    return False


def sources(root: Path) -> list[Path]:
    """The sources of the compiled part, and their headers."""
    return sorted((root / "native").glob("*.[ch]*"))


def compiler() -> tuple[list[str], str]:
    """The command of the C++ compiler: that of CXX, which may have flags, or the system's.

    Without one the second text says why.
    """
    named = os.environ.get("CXX", "")
    try:
        words = shlex.split(named)
    except ValueError as error:
        return [], f"CXX is no command ({error}): {named}"
    if words:
        return words, "" if shutil.which(words[0]) else f"no C++ compiler {words[0]}, as CXX has it"
    found = shutil.which("c++") or shutil.which("g++")
    return ([found], "") if found else ([], "no C++ compiler (c++ or g++; CXX names another)")


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
    compile_in_place(Path(__file__).parent)
