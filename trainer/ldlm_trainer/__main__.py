"""python -m ldlm_trainer prepare|export|preflight|train"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import record

from ldlm_trainer import config
from ldlm_trainer.errors import TrainerError

FAULTS = "LDLM_FAULTS"
REFUSED = 2  # argparse's exit code for a wrong command line


def main(arguments: Sequence[str]) -> int:
    """The exit code; a `TrainerError` is printed in one line."""
    try:
        _run(_parser().parse_args(arguments))
    except TrainerError as error:
        print(f"ldlm_trainer: {error}", file=sys.stderr)
        return REFUSED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ldlm_trainer", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="make a data set without a download")
    prepare.add_argument("folder", type=Path)
    prepare.add_argument("--text", type=Path, help="a text of your own, a document a line")
    prepare.add_argument("--embed", help="a sentence-transformers model for the latents")
    prepare.add_argument("--length", type=int, default=32, help="tokens a sample")
    export = commands.add_parser("export", help="write upstream's files of a data set")
    export.add_argument("folder", type=Path)
    export.add_argument("out", type=Path)
    for name, said in (("train", "train"), ("preflight", "check what a training needs")):
        command = commands.add_parser(name, help=said)
        command.add_argument("--config", type=Path, help="a TOML file")
        command.add_argument("settings", nargs="*", help="section.key=value")
        if name == "preflight":
            command.add_argument("--nodes", type=int, default=1)
            command.add_argument("--processes", type=int, default=1)
    return parser


def _run(given: argparse.Namespace) -> None:
    if given.command == "prepare":
        from ldlm_trainer.prepare import prepare

        counts = prepare(given.folder, text=given.text, embed=given.embed, length=given.length)
        print(", ".join(f"{split}: {count} samples" for split, count in counts.items()))
    elif given.command == "export":
        from ldlm_trainer.shards import export

        export(given.folder, given.out)
    else:
        faults = [f"run.faults={os.environ[FAULTS]}"] if os.environ.get(FAULTS) else []
        settings = config.load(given.config, [*faults, *given.settings])
        (_preflight if given.command == "preflight" else _train)(settings, given)


def _preflight(settings: config.Config, given: argparse.Namespace) -> None:
    from ldlm_trainer.preflight import check

    for line in check(settings, nodes=given.nodes, processes=given.processes):
        print(line, flush=True)


@record
def _train(settings: config.Config, given: argparse.Namespace) -> None:
    from ldlm_trainer.rank_process import joined
    from ldlm_trainer.train import Trainer

    with joined(settings.run) as process, Trainer(settings, process) as trainer:
        trainer.train()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
