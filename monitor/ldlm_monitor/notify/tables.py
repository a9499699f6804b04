"""The tables of the outbox."""

from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal["sent", "retried", "failed", "repeated", "withheld"]
"""`withheld`: it was over before what kept it back was."""
COUNTED_FROM_ZERO: tuple[Outcome, ...] = ("sent", "retried", "failed", "repeated")

SCHEMA = """
CREATE TABLE IF NOT EXISTS notification (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    state TEXT NOT NULL,
    started_at REAL NOT NULL,
    added_at REAL NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (key, state, started_at)
);
CREATE INDEX IF NOT EXISTS notification_age ON notification (added_at);
CREATE TABLE IF NOT EXISTS delivery (
    notification INTEGER NOT NULL REFERENCES notification (id),
    receiver TEXT NOT NULL,
    outcome TEXT NOT NULL DEFAULT 'pending',
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at REAL NOT NULL,
    in_flight INTEGER NOT NULL DEFAULT 0,
    settled_at REAL,
    error TEXT,
    PRIMARY KEY (notification, receiver)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS delivery_queue
    ON delivery (receiver, notification) WHERE outcome = 'pending';
CREATE TABLE IF NOT EXISTS tally (
    receiver TEXT NOT NULL,
    outcome TEXT NOT NULL,
    count INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (receiver, outcome)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS receiver (
    name TEXT PRIMARY KEY,
    attempts INTEGER NOT NULL DEFAULT 0,
    retry_at REAL NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS episode (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    incident TEXT,
    opened_at REAL NOT NULL,
    touched_at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS episode_run ON episode (run, id);
CREATE TABLE IF NOT EXISTS episode_alert (
    key TEXT PRIMARY KEY,
    episode INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS episode_alert_episode ON episode_alert (episode);
CREATE TABLE IF NOT EXISTS alert_group (
    id INTEGER PRIMARY KEY,
    receiver TEXT NOT NULL,
    route TEXT NOT NULL,
    labels TEXT NOT NULL,
    incident TEXT,
    opened_at REAL NOT NULL,
    flush_at REAL NOT NULL,
    delay REAL NOT NULL,
    waits INTEGER NOT NULL DEFAULT 1,
    told_at REAL,
    repeat_at REAL,
    closed_at REAL,
    worst_told TEXT NOT NULL DEFAULT '',
    place TEXT,
    changes INTEGER NOT NULL DEFAULT 0,
    updated_at REAL NOT NULL DEFAULT 0,
    picture TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS alert_group_labels ON alert_group (receiver, route, labels, id);
CREATE INDEX IF NOT EXISTS alert_group_incident ON alert_group (incident);
CREATE INDEX IF NOT EXISTS alert_group_waits ON alert_group (receiver, flush_at) WHERE waits;
CREATE INDEX IF NOT EXISTS alert_group_open ON alert_group (receiver) WHERE closed_at IS NULL;
CREATE TABLE IF NOT EXISTS member (
    notification INTEGER NOT NULL,
    receiver TEXT NOT NULL,
    route TEXT NOT NULL,
    alert_group INTEGER,
    PRIMARY KEY (notification, receiver)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS member_group ON member (alert_group);
CREATE TABLE IF NOT EXISTS story (
    incident TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    changed_at REAL NOT NULL
) WITHOUT ROWID;
"""
