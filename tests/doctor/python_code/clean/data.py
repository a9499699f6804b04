import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_loader(config, rank, world_size):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 50, (64, 8), generator=generator)
    dataset = TensorDataset(tokens, tokens)
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True)
    num_workers = config["data"]["num_workers"]
    train_loader = DataLoader(
        dataset,
        batch_size=4,
        sampler=sampler,
        num_workers=num_workers,
        pin_memory=torch.cuda.is_available(),
        persistent_workers=num_workers > 0,  # torch refuses it without workers
        prefetch_factor=4 if num_workers > 0 else None,
        drop_last=True,
    )
    return train_loader, sampler
