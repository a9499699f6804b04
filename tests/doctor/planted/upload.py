# !! secret-in-file: login(token=
import os
from getpass import getpass

from huggingface_hub import login

password = getpass("password: ")
api_key = os.environ["WANDB_API_KEY"]
login(token="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")
