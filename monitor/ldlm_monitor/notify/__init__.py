"""Delivers alert transitions to people: at least once, in order, without secrets.

A transition becomes a `message.Notification` and waits in the `outbox.Outbox`, which makes
messages of them; one `courier.Courier` a receiver sends those until they are accepted.
"""
