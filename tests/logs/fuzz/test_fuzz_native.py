"""The compiled part under the sanitizers, on damaged input: for two seconds of every run."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("fuzz_native.cpp")
NATIVE = Path(__file__).parents[3] / "native"
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-ffp-contract=off"]


@pytest.mark.live
@pytest.mark.parametrize("seconds", [2, pytest.param(600, marks=pytest.mark.long)])
def test_no_input_is_read_beyond_its_end(tmp_path: Path, seconds: int) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    flags = ["-std=c++17", "-g", "-O1", *SANITIZED, f"-I{NATIVE}"]
    program = tmp_path / "fuzz"
    units = [SCRIPT, *NATIVE.glob("*.cpp")]
    subprocess.run([compiler, *flags, "-o", program, *units], check=True)
    seed = str(random.randrange(2**32))
    done = subprocess.run(
        [program, str(seconds), seed], capture_output=True, text=True, errors="replace", check=False
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-4000:]}"
    assert done.stdout.startswith("Done ")
