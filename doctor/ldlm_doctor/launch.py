"""Which commands start a training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import re2

from ldlm_doctor.bash_values import UNKNOWN

_WRAPPERS = frozenset({
    "apptainer", "chrt", "command", "conda", "docker", "enroot", "env", "eval", "exec", "ionice",
    "micromamba", "nice", "nohup", "numactl", "pipenv", "podman", "poetry", "pixi", "setsid",
    "singularity", "srun", "ssh", "stdbuf", "sudo", "taskset", "time", "timeout", "unbuffer",
    "uv", "xargs", "mpirun", "mpiexec", "orterun", "pdsh", "clush", "sh", "bash", "zsh",
})  # fmt: skip
_SUBMITTERS = frozenset({"sbatch", "qsub", "kubectl"})
_DISTRIBUTED = frozenset({
    "torchrun", "torchrun_hf", "deepspeed", "horovodrun", "composer", "colossalai",
    "fairseq-hydra-train", "torchpippy", "torchx", "msrun", "ds",
})  # fmt: skip
_SUBCOMMANDS = {
    "accelerate": {"launch"},
    "llamafactory-cli": {"train"},
    "axolotl": {"train"},
    "tune": {"run"},
    "lightning": {"run"},
    "fabric": {"run"},
    "oumi": {"train", "distributed"},
    "swift": {"sft", "pt", "rlhf"},
    "xtuner": {"train"},
    "nemo": {"llm"},
}
_SHELLS = frozenset({"sh", "bash", "zsh"})
_SEPARATORS = frozenset({";", "&&", "||", "|", "&", "|&"})
_COMMAND_FLAG = re2.compile(r"^-[a-z]*c$")
_PYTHON = re2.compile(r"^(?:python|pypy)[0-9.]*$")
_MODULES = re2.compile(
    r"^(?:torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch|deepspeed\.launcher.*)$"
)
_TRAINING = re2.compile(
    r"(?i)(?:^|[^a-z])(?:(?:pre|re)?train(?:er|ing)?|(?:fine|instruct)?_?-?tun(?:e|ing)|finetune|"
    r"sft|dpo|grpo|ppo|rlhf|pretrain_[a-z0-9]+|main|launch|run)(?:[^a-z]|$)"
)
_NO_TRAINING = re2.compile(
    r"(?i)(?:^|[^a-z])(?:eval(?:uate|uation)?|infer(?:ence)?|predict|generate|sampl(?:e|ing)|serve|"
    r"download|prepare|preprocess|tokenize|convert|export|merge|plot|install|build|tests?|lint|"
    r"docker|jupyter|server|demo|docs?|clean|upload|sync)"
    r"(?:[^a-z]|$)"
)
_SCRIPT = re2.compile(r"\.(?:py|sh|bash|sbatch|slurm)$")


def wraps(text: str) -> bool:
    """Whether a command is there to start another one."""
    return text.rsplit("/", 1)[-1] in _WRAPPERS | _SUBMITTERS


def starts(text: str) -> bool:
    """Whether a word is the program that a wrapper starts."""
    name = text.rsplit("/", 1)[-1]
    return bool(name in _DISTRIBUTED or _PYTHON.match(name) or _SCRIPT.search(name))


def launches(texts: Sequence[str]) -> bool:
    """Whether a command starts a training: a launcher, or a script whose name says so."""
    return any(_launches(part) for part in _simple_commands(texts))


def _simple_commands(texts: Sequence[str]) -> Iterator[list[str]]:
    """The commands in the text that eval, or a shell by -c, is given; mostly there is one."""
    command: list[str] = []
    for text in texts:
        shell = any(word.rsplit("/", 1)[-1] in _SHELLS for word in command[:-1])
        if command == ["eval"] or (shell and _COMMAND_FLAG.match(command[-1])):
            yield command
            command = []
        if text in _SEPARATORS or text.endswith(";"):
            yield [*command, text.rstrip(";")] if text.strip(";&|") else command
            command = []
        else:
            command.append(text)
    yield command


def _launches(texts: Sequence[str]) -> bool:
    for at, text in enumerate(texts):
        name = text.rsplit("/", 1)[-1]
        rest = texts[at + 1 :]
        if name in _DISTRIBUTED or (rest and rest[0] in _SUBCOMMANDS.get(name, ())):
            return True
        if _PYTHON.match(name):
            return _trains(rest)
        if _SCRIPT.search(name):
            return _is_training(name.rsplit(".", 1)[0])
        if at == 0 and name not in _WRAPPERS and text != UNKNOWN:
            return False
    return False


def distributes(texts: Sequence[str]) -> bool:
    """Whether it starts several processes that talk to each other."""
    names = [text.rsplit("/", 1)[-1] for text in texts]
    started = _DISTRIBUTED.intersection(names) or any(bool(_MODULES.match(name)) for name in names)
    spread = {"srun", "mpirun", "mpiexec", "accelerate"} & set(names)
    return launches(texts) and bool(started or spread)


def _trains(arguments: Sequence[str]) -> bool:
    """What Python is given: the first word that is no flag is a script, or -m names a module."""
    words = iter(arguments)
    for word in words:
        if word == "-m":
            module = next(words, "")
            return bool(_MODULES.match(module)) or _is_training(module.replace(".", "/"))
        if word in ("-c", "-"):
            return False
        if word in ("-W", "-X"):
            next(words, None)
        elif not word.startswith("-"):
            return _is_training(word.rsplit("/", 1)[-1].removesuffix(".py"))
    return False


def _is_training(name: str) -> bool:
    return bool(_TRAINING.search(name)) and not _NO_TRAINING.search(name)
