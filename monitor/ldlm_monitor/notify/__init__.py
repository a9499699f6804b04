"""Delivers alert transitions to people: at least once, in order, without secrets.

A transition becomes a `message.Notification`. The `outbox.Outbox` stores notifications and combines
them into messages. Each receiver has a `courier.Courier`, which retries until it has accepted them.
"""
