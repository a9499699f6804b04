"""What well-known projects write, shortened: what looks like a defect there and is none."""

from tests.doctor.python_code.code_audits import ids

TWO_FUNCTIONS = """
import torch

def search(trainer, study, trials):
    if trainer.args.process_index == 0:

        def objective(trial):
            torch.distributed.broadcast_object_list([trial], src=0)
            return trainer.train()

        study.optimize(objective, trials)
    else:
        for _ in range(trials):
            torch.distributed.broadcast_object_list([None], src=0)
            trainer.train()
"""


def test_the_main_rank_may_broadcast_in_a_function_that_it_hands_on() -> None:
    assert ids(TWO_FUNCTIONS) == []
    alone = TWO_FUNCTIONS.replace(
        "            torch.distributed.broadcast_object_list([trial]", "#"
    )
    assert ids(alone) == [], "what the main rank calls may be one"
    alone = alone.replace("study.optimize(objective, trials)", "print(trials)")
    assert ids(alone) == ["collective-on-one-rank"]


BEFORE = """
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

def prepare(model):
{first}
    state = {{}}
    if dist.get_rank() == 0:
        state = get_model_state_dict(model)
{then}
    return state
"""
SHARD = "    fully_shard(model)"


OWN_GRADIENT = """
import torch

class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, log_probs, losses):
        return torch.tensor([each.item() for each in losses]).to(log_probs.device)

def train(model, loader, optimizer):
    for batch in loader:
        Loss.apply(model(batch.cuda()), [batch]).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_the_forward_of_an_autograd_function_is_no_model() -> None:
    assert ids(OWN_GRADIENT) == []


EVERY_RANK = """
import shutil
import torch
import torch.distributed as dist

def main(args, model, train_loader, optimizer):
    model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    for epoch in range(args.epochs):
        train(train_loader, model, optimizer)
        {guard}save_checkpoint({{
            'epoch': epoch + 1,
            'state_dict': model.state_dict(),
            'optimizer': optimizer.state_dict(),
        }}, False)

def train(train_loader, model, optimizer):
    for i, (images, target) in enumerate(train_loader):
        loss = torch.nn.functional.cross_entropy(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

def save_checkpoint(state, is_best, filename='checkpoint.pth.tar'):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, 'model_best.pth.tar')
"""
