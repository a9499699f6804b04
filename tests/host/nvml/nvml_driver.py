"""A driver of NVIDIA GPUs for nvidia-ml-py, as far as this project asks it (driver.c)."""

import shutil
import subprocess
from pathlib import Path

import pytest

GIB = 2**30
TOTAL = 80 * GIB
COMPILER = shutil.which("cc")
with_driver = pytest.mark.skipif(COMPILER is None, reason="no C compiler is installed")


def build(folder: Path) -> Path:
    """Make the driver's library in the folder, for LD_LIBRARY_PATH."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    assert COMPILER is not None
    source, made = Path(__file__).with_name("driver.c"), folder / "libnvidia-ml.so.1"
    subprocess.run(
        [COMPILER, "-Wall", "-Werror", "-shared", "-fPIC", "-o", made, source], check=True
    )
    return folder


def gpu(used: int, name: str = "NVIDIA-H100") -> str:
    """A GPU's line in the file that NVML_STATE names."""
    return f"gpu {name} {used} {TOTAL}"
