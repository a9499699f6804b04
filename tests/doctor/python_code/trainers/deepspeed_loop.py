import deepspeed
from deepspeed import comm as dist


def train(model, loader, args):
    model_engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    for step, batch in enumerate(loader):
        loss = model_engine(batch.to(model_engine.device))
        model_engine.backward(loss)
        model_engine.step()
        if step % args.save_every == 0:
            model_engine.save_checkpoint(args.save_dir, tag=f"step_{step}")
            dist.barrier()
            if dist.get_rank() == 0:
                print(f"saved {step}")
