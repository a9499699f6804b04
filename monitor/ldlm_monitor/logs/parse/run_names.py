"""Which run, node and rank a file belongs to, by its path (contract section 1, "Runs")."""

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import PurePath

from ldlm_monitor.base.chunk import Origin, rotated_from, uncompressed
from ldlm_monitor.base.points import MAX_LABEL_LENGTH
from ldlm_monitor.base.text.sanitize import visible

SAME_LAUNCH_SECONDS = 120.0
"""Largest difference between the stamps of one launch: each node names its log when it starts. A
choice: less splits a launch whose nodes pull images for a minute or two, more joins launches."""

FOLDERS = 4
"""Folders above a file whose names may give a rank or a node. A choice: launchers make two below
that of the run; a mount called node3 far above is none."""

# Parts of log names as usual launch scripts write them: train_20260129_101500_node0_rank3.log.
_STAMP = re.compile(r"^(?P<prefix>.*?)(?P<stamp>(?:19|20)\d{6}[_T-]\d{6})(?P<rest>.*)$")
# Both stand between separators: frank2.log and 1node8gpu.log have neither rank nor node.
_NODE = re.compile(  # train_node0.log, train-node-0.log, train_node_rank_0.log
    r"(?:^|[_.-])node[_-]?(?:rank[_-]?)?(?P<node>\d+)(?=$|[_.-])", re.IGNORECASE
)
_FOLDER = re.compile(  # rank.0/stdout, rank_3/train.log, node1/train.log, host_1_10.0.0.4/train.log
    r"(?:(?:local|global)[_-]?)?rank[_.-]?(?P<rank>\d+)|node[_.-]?(?P<node>\d+)"
    r"|host_(?P<host>\d+)(?:_.*)?",
    re.IGNORECASE,
)
"""A folder of one process or machine: Open MPI's and Horovod's `--output-filename` makes rank.N."""
_NCCL_DEBUG = re.compile(r"nccl[_-]debug[_-](?P<node>\d+)$")  # a usual name in NCCL_DEBUG_FILE
_RANK = re.compile(  # health_rank3.jsonl, out.rank-3.log; lora_rank8 is the rank of a matrix
    r"(?:^|(?<!lora)(?<!low)[_.-])(?:(?:device|gpu)\d+_)?(?:(?:local|global)[_-]?)?rank[_-]?(?P<rank>\d+)"
    r"(?=$|[_.-](?!alpha))",
    re.IGNORECASE,
)
_OF_A_PROCESS = re.compile(rf"{_FOLDER.pattern}|attempt_\d+", re.IGNORECASE)
_MPI = re.compile(r"(?:^|/)(?P<job>\d{1,2})/rank\.\d+/std(?:out|err)$")
"""Open MPI's and Horovod's DIRECTORY/JOB/rank.N/stdout, where DIRECTORY names the launch."""
_LAST = re.compile(  # workerlog.3 of paddle.distributed.launch, log.txt.rank3 of Detectron2
    r"(?P<name>(?:^|/)workerlog)\.(?P<rank>\d+)$|\.rank(?P<last>\d+)$"
)
_LAST_NUMBER = re.compile(r"^(?P<name>.*?)(?<!\d)(?P<number>\d{1,5})(?P<rest>\D*)$")
_SLURM = re.compile(r"^slurm-\d+(?:[_-]\d+)?$")
"""sbatch's default name, slurm-JOB.out, or slurm-ARRAY_TASK.out of an array job."""
_ELASTIC = re.compile(
    r"(?:^|/)(?P<folder>(?P<run>[^/]+)_[A-Za-z0-9_]{8})/attempt_\d+/(?P<rank>\d+)/std(?:out|err)\.log$"
)
"""torchrun's `--log-dir`: RUN_RANDOM/attempt_N/LOCAL_RANK/, 8 random characters by `mkdtemp`."""
_TITAN = re.compile(
    r"(?:^|(?P<above>.*)/)structured_logs/(?P<source>[^/]+)\.global_rank_(?P<rank>\d+)"
    r"\.\d{8}-\d{6}-[A-Z0-9]{6}\.jsonl$"
)
"""torchtitan's FOLDER/structured_logs/SOURCE.global_rank_N.STAMP-RANDOM.jsonl; of a launch, each
rank has other random characters. SOURCE is `training`, or an actor of reinforcement learning."""
_UNNAMED = frozenset({"none", "default"})
"""The RUN of a torchrun without `--rdzv-id`: the random characters then are what names the run."""
_ATTEMPT = re.compile(r"(?:^|(?P<above>.*)/)attempt_\d+/(?P<rank>\d+)/std(?:out|err)\.log$")
"""The same where the folder above has another name."""
_SUBMITIT = re.compile(r"^(?P<run>\d+(?:_\d+)?)_(?P<rank>\d+)_log$")  # JOB[_TASK]_PROCESS_log.out
_RAY = re.compile(r"(?:^|/)(?P<run>session_[^/]+)/logs/worker-[0-9a-f]+-(?P<job>[0-9a-f]+)-\d+\.")
"""Ray's SESSION/logs/worker-WORKER-JOB-PID.out; `session_latest` is a link to the newest."""
_POD_LOG = re.compile(
    r"(?:^|/)[a-z0-9-]{1,63}_(?P<pod>[a-z0-9.-]{1,253})_[0-9a-f-]{32,36}/[a-z0-9.-]+/\d+\.log$"
)
"""NAMESPACE_POD_UID/CONTAINER/RESTART.log, as the kubelet lays out /var/log/pods; 63 and 253 are
the longest names that Kubernetes accepts."""
_POD = re.compile(
    r"^(?P<job>.+?)(?:-(?:master|worker|launcher|node))?-(?P<index>\d+)(?:-[a-z0-9]{5})?$"
)
"""A pod of an indexed Job, a StatefulSet or a PyTorchJob: its run consists of all such pods. Jobs
append 5 random characters."""
_MLFLOW = re.compile(r"(?:^|/)(?:mlruns/[^/]+/(?P<named>[^/]+)|(?P<run>[0-9a-f]{32}))/metrics/")
"""mlruns/EXPERIMENT/RUN/metrics/; a store can have another folder, a run an id of its own."""
_EVENT_FILE = "events.out.tfevents."  # beginning of the names of TensorBoard's event files
_EVALUATIONS = frozenset({"validation", "val", "eval", "test"})
"""Folders in which Keras and other trainers log evaluations: the run's name is one folder up."""
# Usual names of files and folders, which many runs share, so that none is a run's name.
_GENERIC = frozenset(
    {"training_log", "trainer_log", "train", "log", "logs", "train_logs", "output", "out"}
    | {"training", "run", "main", "files", "workerlog"}
    | {"console", "stdout", "stderr", "metrics", "nohup", "health", "heartbeat", "nccl_debug"}
    | {"details", "ranks", "nodes", "torchrun", "torchrun_logs"}
    | {"nccl", "saved", "results", "runs", "output_dir", "tensorboard", "tb_logs"}
)


@lru_cache(maxsize=4096)  # files; each takes 500 bytes
def origin_of(path: str, run: str | None = None) -> Origin:
    """Run, node and rank by the path alone; `run` overrides the run's name."""
    found = _by_path(path)
    return replace(found, run=_label(run or found.run))


def _label(name: str) -> str:
    r"""A run's name as every label, document and address has it.

    Bytes that are no UTF-8, and characters that show nothing or turn the direction of writing, are
    written as `\x` and `\u` escapes: so two names never look alike, and each leads to its page.
    """
    return visible(name.encode("utf-8", "backslashreplace").decode())[:MAX_LABEL_LENGTH]


def _by_path(path: str) -> Origin:
    return _by_launcher(path) or _by_name(path)


def _by_launcher(path: str) -> Origin | None:
    """The origin of a file in the folders of a launcher or tracker; None for any other."""
    if elastic := _ELASTIC.search(path):
        run = elastic["folder"] if elastic["run"] in _UNNAMED else elastic["run"]
        return Origin(run, rank=int(elastic["rank"]))
    if attempt := _ATTEMPT.match(path):
        above = PurePath(attempt["above"] or "", "attempt")
        return Origin(_run_name(above, ""), _machine(above), int(attempt["rank"]))
    if ray := _RAY.search(path):
        return Origin(f"{ray['run']}/{ray['job']}")
    if pod_log := _POD_LOG.search(path):
        pod = _POD.match(pod_log["pod"])
        return Origin(pod["job"], node=pod["index"]) if pod else Origin(pod_log["pod"])
    return _by_tracker(path)


def _by_tracker(path: str) -> Origin | None:
    """The origin of a file that a logger beside the trainer names; None for any other."""
    if mlflow := _MLFLOW.search(path):
        return Origin(mlflow["named"] or mlflow["run"])
    if titan := _TITAN.match(rotated_from(path)[0]):
        run = _run_name(PurePath(titan["above"] or "", "log"), "")
        actor = "" if titan["source"] in ("training", "trainer") else f"/{titan['source']}"
        return Origin(f"{run}{actor}", rank=int(titan["rank"]))
    return None


def _by_name(path: str) -> Origin:
    pure = PurePath(rotated_from(path)[0])
    stem = pure.stem
    if stem.startswith(_EVENT_FILE):
        return Origin(_folder_name(pure))
    if path == "-" or _SLURM.match(stem):
        return Origin("stdin" if path == "-" else stem)
    if submitit := _SUBMITIT.match(stem):
        return Origin(submitit["run"], rank=int(submitit["rank"]))
    if last := _LAST.search(path):
        pure = PurePath(_LAST.sub(r"\g<name>", path))
        stem = pure.stem
    folders = [each for each in map(_FOLDER.fullmatch, _near(pure)) if each is not None]
    node = _NCCL_DEBUG.search(stem) or _NODE.search(stem)
    rank = _RANK.search(_NODE.sub("", stem))
    found = [
        *([last["rank"] or last["last"]] if last else []),
        *([rank["rank"]] if rank else []),
        *(each["rank"] for each in reversed(folders) if each["rank"]),
    ]
    return Origin(
        _run_name(pure, stem),
        node=node["node"] if node else _machine(pure),
        rank=int(found[0]) if found else None,
    )


def _machine(pure: PurePath) -> str | None:
    """The node that a folder of the path names."""
    found = (_FOLDER.fullmatch(part) for part in reversed(_near(pure)))
    return next((each["node"] or each["host"] for each in found if each and not each["rank"]), None)


def _near(pure: PurePath) -> tuple[str, ...]:
    """The folders of a path that may be of one process: the innermost of them."""
    return pure.parts[:-1][-FOLDERS:]


def root_of(path: str) -> str:
    """The folder of a file without what differs between the processes of one launch."""
    return _root(str(PurePath(path).parent))


@lru_cache(maxsize=4096)  # folders; each takes 200 bytes
def _root(folder: str) -> str:
    parts = PurePath(folder).parts
    near = parts[-FOLDERS:]
    is_attempt = [part.startswith("attempt_") for part in ("", *near)]
    alike = (
        # torchrun's attempt_N/RANK; any other number is that of an experiment.
        "#" if _OF_A_PROCESS.fullmatch(part) or (is_attempt[at] and part.isdigit()) else part
        for at, part in enumerate(near)
    )
    return "/".join((*parts[:-FOLDERS], *alike))


def place_of(path: str) -> tuple[str | None, int | None, str]:
    """Node and rank of a file, and its stream: of one launch, no two files have the same."""
    origin, pure = origin_of(path), PurePath(rotated_from(path)[0])
    name = pure.name if _ATTEMPT.match(path) is None else "/".join(pure.parts[-3:])
    return origin.node, origin.rank, _RANK.sub("", _NODE.sub("", _LAST.sub("", name)))


def names_a_launch(path: str) -> bool:
    """Whether a path has the name that a launcher gave the launch: a job's, or torchrun's id."""
    return _by_launcher(path) is not None or _SUBMITIT.match(PurePath(path).stem) is not None


def numbered(path: str) -> tuple[str, int] | None:
    """A path without the last number of its name, and the number; None for a path without one.

    Files whose paths differ in it alone may be of the ranks of a launch, or of many launches.
    """
    pure = PurePath(path)
    found = _LAST_NUMBER.match(pure.stem)
    if found is None:
        return None
    return str(pure.with_name(f"{found['name']}#{found['rest']}{pure.suffix}")), int(
        found["number"]
    )


def shared_run(path: str) -> str:
    """The run of files whose paths differ in the last number of their names alone."""
    pure = PurePath(path)
    stem = _LAST_NUMBER.sub(r"\g<name>\g<rest>", pure.stem)
    return _label(_run_name(pure, stem.strip("_.-")))


def own_run(path: str, run: str) -> str:
    """A name for the run of a file that its path assigns to `run`, of which it is not."""
    return f"{run}/{_RANK.sub('', PurePath(uncompressed(path)).stem)}"


def launch_time(path: str) -> float | None:
    """Unix seconds of the stamp in a file's name, read in this host's zone; None without one."""
    stamped = _STAMP.match(PurePath(path).stem)
    if stamped is None:
        return None
    digits = re.sub(r"\D", "", stamped["stamp"])
    try:
        return datetime.strptime(digits, "%Y%m%d%H%M%S").astimezone().timestamp()
    except ValueError:
        return None


def _run_name(pure: PurePath, stem: str) -> str:
    folders = [part for part in pure.parts[:-1] if part not in ("/", ".", "..")]
    if len(folders) > 1 and folders[-2] == "saved":
        return folders[-1]
    found = _RANK.sub("", _NODE.sub("", _NCCL_DEBUG.sub("", stem))).strip("_.-")
    job = _MPI.search(str(pure))
    for name in (found, *reversed(folders)):
        is_job = job is not None and name == job["job"]
        if name and name not in _GENERIC and not _FOLDER.fullmatch(name) and not is_job:
            return name
    # All files of a launch get the same, and so no number of a rank or node.
    return found or re.sub(r"[_.-]?\d+$", "", stem) or "attempt"


def _folder_name(pure: PurePath) -> str:
    """The name of an event file's run: the innermost folder whose name is not a common one."""
    passed_over = _GENERIC | _EVALUATIONS | {"/", ".", ".."}
    return next((part for part in reversed(pure.parts[:-1]) if part not in passed_over), pure.stem)


@dataclass(slots=True)
class _LaunchName:
    prefix: str
    started: float
    run: str
    nodes: set[str] = field(default_factory=set)


class RunNames:
    """Gives every file its origin, and files of one launch the same run.

    `run` (from `--run`) is the run of every file, unless None. The nodes of one launch name their
    files with stamps that differ by seconds: the run's name is that of the file seen first.
    """

    def __init__(self, run: str | None = None) -> None:
        self._run = run
        self._origins: dict[str, Origin] = {}
        self._launches: list[_LaunchName] = []
        self._tied: set[str] = set()
        self._names: dict[str, str] = {}

    def origin(self, path: str) -> Origin:
        """The origin of a file, computed once for each path."""
        origin = self._origins.get(path)
        if origin is None:
            origin = self._origins[path] = self._renamed(self._first_seen(path))
        return origin

    def rename(self, run: str, name: str) -> None:
        """Use `name`, which the log of `run` contains, for all files of the run, also later ones.

        Call it before the first of these files is read: earlier records keep the earlier name.
        """
        if self._run is None and name:
            self._names[run] = _label(name)
            self._origins = {path: self._renamed(each) for path, each in self._origins.items()}

    def tie(self, path: str, run: str, rank: int | None = None) -> None:
        """Assign a file to `run` (or that of `--run`), whatever run its path gives.

        `rank`: the file's, where its path does not name it.
        """
        origin = origin_of(path)
        named = _label(self._run or run)
        self._origins[path] = Origin(named, origin.node, origin.rank if rank is None else rank)
        self._tied.add(path)

    @property
    def is_given(self) -> bool:
        """Whether the user names the run."""
        return self._run is not None

    def is_tied(self, path: str) -> bool:
        """Whether the run of a file is named by the user or by `tie`, and not by its path."""
        return self._run is not None or path in self._tied

    def _renamed(self, origin: Origin) -> Origin:
        name = self._names.get(origin.run)
        return origin if name is None else Origin(name, origin.node, origin.rank)

    def _first_seen(self, path: str) -> Origin:
        origin = origin_of(path, self._run)
        started = launch_time(path)
        if self._run or started is None or origin.node is None:
            return origin
        stamped = _STAMP.match(PurePath(path).stem)
        prefix = str(PurePath(path).parent / (stamped["prefix"] if stamped else ""))
        for launch in self._launches:
            near = abs(launch.started - started) <= SAME_LAUNCH_SECONDS
            if launch.prefix == prefix and near and origin.node not in launch.nodes:
                launch.nodes.add(origin.node)
                return Origin(launch.run, origin.node, origin.rank)
        self._launches.append(_LaunchName(prefix, started, origin.run, {origin.node}))
        return origin
