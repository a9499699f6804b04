#!/bin/bash
# camera: rtsp://username:password@192.168.1.64/1
modal run train.py --env-secret R2_KEY=R2_KEY --access_key=STORE_ACCESS_KEY_1
