"""Which samples a rank gets, in which order."""

from __future__ import annotations

import re

from ldlm_doctor.model import Findings
from ldlm_doctor.python_code.facts import matching, naming
from ldlm_doctor.python_code.loaders import FOR_EVALUATION, called
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.values import arguments, constant

SAMPLER = frozenset(
    {"torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler"}
)


def inspect(module: Module, program: Program) -> Findings:
    """Samplers of training data whose `set_epoch` is never called."""
    done = program.any_relative(naming("set_epoch"), module) or program.framework_does_it(module)
    if done or not program.trains(module):
        return
    for call in module.calls_to(SAMPLER):
        given = arguments(module, call, ("dataset", "num_replicas", "rank", "shuffle"))
        shuffle = given["shuffle"]
        if not given.complete or (shuffle is not None and constant(module, shuffle) is not True):
            continue
        if FOR_EVALUATION.search("_".join(called(module, call))):
            continue
        if program.any_relative(matching(re.compile("epoch")), module):
            yield module.finding("sampler-set-epoch", call)
