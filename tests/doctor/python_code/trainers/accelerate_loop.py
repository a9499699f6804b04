import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def training_function(config, model, train_dataset, eval_dataset):
    accelerator = Accelerator(gradient_accumulation_steps=config.gradient_accumulation_steps)
    train_dataloader = DataLoader(train_dataset, shuffle=True, batch_size=8)
    eval_dataloader = DataLoader(eval_dataset, batch_size=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    model, optimizer, train_dataloader, eval_dataloader = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader
    )
    for epoch in range(config.num_epochs):
        for batch in train_dataloader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        losses = []
        with torch.no_grad():
            for batch in eval_dataloader:
                losses.append(accelerator.gather_for_metrics(model(**batch).loss))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            print(f"epoch {epoch} loss {torch.stack(losses).mean().item():.4f}")
        accelerator.save_state(f"{config.output_dir}/epoch_{epoch}")
