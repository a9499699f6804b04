#!/bin/bash
# !! secret-in-file: WANDB_API_KEY
# !! secret-in-file: HF_TOKEN
# !! secret-in-file: wandb login
# !! secret-by-name: DB_PASSWORD
# !! secret-by-name: git clone
# !! secret-in-file: OPENAI
# !! secret-in-file: AWS_ACCESS_KEY_ID
export WANDB_API_KEY=0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c
export HF_TOKEN=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
export AWS_ACCESS_KEY_ID=AKIA1B9K0Z8X7C6V5B4N
wandb login --relogin 0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c
export DB_PASSWORD="k7Qz-91xLm2"
git clone https://trainer:gAe81kd0-ppw@git.example.org/team/data.git
# OPENAI: sk-proj-a8Kd72Mf90Lq3Zx7Cv5Bn1
