#!/bin/bash
# camera: rtsp://username:password@192.168.1.64/1
modal run train.py --env-secret R2_KEY=R2_KEY --access_key=STORE_ACCESS_KEY_1
python launch.py --secret S2_API_KEY=somebody_S2_API_KEY --secret HF_TOKEN=team-hf-token-2
