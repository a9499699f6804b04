import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss = outputs.loss * self.args.loss_weight
        return (loss, outputs) if return_outputs else loss


def main(dataset):
    model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.bfloat16)
    arguments = TrainingArguments(
        output_dir="out",
        bf16=True,
        gradient_accumulation_steps=4,
        dataloader_num_workers=4,
        dataloader_persistent_workers=True,
        save_total_limit=2,
        gradient_checkpointing=True,
    )
    trainer = WeightedTrainer(model=model, args=arguments, train_dataset=dataset)
    trainer.train(resume_from_checkpoint=True)
    if trainer.is_world_process_zero():
        print("done")
    trainer.save_model()
