"""Which rank of which run a process is: as it is given, or as launchers say."""

from pathlib import Path

import pytest

from ldlm_callback.rank import Launch


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "RANK WORLD_SIZE LOCAL_RANK SLURM_PROCID SLURM_NTASKS SLURM_LOCALID SLURM_JOB_ID"
    names += " OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK PMI_RANK"
    names += " PMI_SIZE TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT LDLM_RUN"
    for name in names.split():
        monkeypatch.delenv(name, raising=False)


def found(*given: object) -> Launch:
    return Launch.detect(*(*given, None, None, None, None)[:4])  # type: ignore[arg-type]


def ranks(launch: Launch) -> tuple[int, int, int]:
    return launch.rank, launch.world_size, launch.local_rank


def test_a_process_that_nobody_launched_is_rank_0_of_a_run_of_unknown_size() -> None:
    launch = found()
    assert ranks(launch) == (0, -1, 0)
    assert (launch.run, launch.out, launch.attempt) == ("run", Path("saved/run"), 0)
    assert (launch.launch, launch.mesh) == (None, {})


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1", (5, 8, 1)),
        ("SLURM_PROCID=6 SLURM_NTASKS=16 SLURM_LOCALID=2", (6, 16, 2)),
        ("RANK=5 SLURM_PROCID=0 WORLD_SIZE=8 SLURM_NTASKS=1", (5, 8, 5)),
        (
            "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0",
            (3, 4, 0),
        ),
        ("PMI_RANK=2 PMI_SIZE=4", (2, 4, 2)),
        ("RANK=x SLURM_PROCID=7", (7, -1, 7)),
    ],
)
def test_launchers_say_it_by_their_variables_torchruns_first(
    variables: str, expected: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in variables.split():
        monkeypatch.setenv(*each.split("="))
    assert ranks(found()) == expected
    assert ranks(found(None, None, 1, 2))[:2] == (1, 2), "what is given counts before"


def test_a_run_has_its_own_name_or_its_folders_or_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (found("a").run, found("a").out) == ("a", Path("saved/a"))
    assert (found("a", "out/b").run, found("a", "out/b").out) == ("a", Path("out/b"))
    assert found(None, "out/b/.").run == "b"
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # torchrun's default
    assert (found().run, found().out) == ("77", Path("saved/77"))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "night")
    assert found().run == "night"
    assert len(found("x" * 1000).run) == 256


def test_restarts_and_the_supervised_launch_are_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    monkeypatch.setenv("LDLM_RUN", "train_20260129_101500")
    assert (found().attempt, found().launch) == (2, "train_20260129_101500")


class Mesh:
    """As PyTorch's DeviceMesh has it."""

    mesh_dim_names = ("pp", "dp")

    def __init__(self, place: "list[int] | None") -> None:
        self._place = place

    def get_coordinate(self) -> "list[int] | None":
        return self._place


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        ({"dp": 0, "pp": 3}, {"dp": 0, "pp": 3}),
        ({"dp": "x", "pp": -1, "tp": 1}, {"tp": 1}),
        (Mesh([1, 0]), {"pp": 1, "dp": 0}),
        (Mesh(None), {}),  # this rank is not part of it
    ],
)
def test_the_place_in_the_mesh_is_numbers_by_dimension(
    mesh: object, expected: "dict[str, int]"
) -> None:
    assert Launch.detect(None, None, None, None, mesh).mesh == expected
