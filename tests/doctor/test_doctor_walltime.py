"""How long a job may run, in the words of its scheduler."""

import pytest

from ldlm_doctor.bash_walk import read_script
from ldlm_doctor.jobs import limit_of


@pytest.mark.parametrize(
    ("directive", "seconds"),
    [
        ("#SBATCH --time=30", 1800),
        ("#SBATCH --time 90:30", 5430),
        ("#SBATCH -t 02:00:00", 7200),
        ("#SBATCH -t1-12", 129_600),
        ("#SBATCH --time=2-00:30", 174_600),
        ("#SBATCH --time=20:00:00 # XXX: as long as a day", 72_000),
        ("#PBS -l walltime=24:00:00", 86_400),
        ("#PBS -l nodes=1:ppn=4,walltime=00:30:00", 1800),
        ("#BSUB -W 4:00", 14_400),
        ("#BSUB -W 90", 5400),
    ],
)
def test_a_time_limit_is_read_as_its_scheduler_reads_it(directive: str, seconds: int) -> None:
    limit = limit_of(read_script(f"#!/bin/bash\n{directive}\ntorchrun train.py\n".encode()))
    assert limit is not None
    assert limit.seconds == seconds


@pytest.mark.parametrize(
    "line",
    ["#SBATCH --time=UNLIMITED", "#SBATCH --time=0", "##SBATCH --time=30", "# --time=30",
     "#SBATCH --time-min=30", "#SBATCH --job-name=t1-12", "echo '#SBATCH --time=30'"],
)  # fmt: skip
def test_what_is_no_limit_is_none(line: str) -> None:
    assert limit_of(read_script(f"#!/bin/bash\n{line}\n".encode())) is None
