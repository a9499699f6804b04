"""A small trainer for joint text-latent diffusion, as MM-LDLM's should have been.

`python -m ldlm_trainer prepare` makes data, `python -m ldlm_trainer train` trains,
`trainer/train_l2t.sh` launches it on one node or several. See docs/trainer.md.
"""
