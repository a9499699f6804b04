"""Delivers alert transitions to people: at least once, in order, without secrets.

A transition becomes a `message.Notification`. The `outbox.Outbox` stores notifications and combines
them into messages. A receiver's `courier.Courier` sends each until it is accepted or given up.
"""
