"""The tables of the outbox."""

from typing import Final

SCHEMA: Final = """
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
CREATE INDEX IF NOT EXISTS delivery_held ON delivery (receiver) WHERE outcome = 'held';
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
CREATE TABLE IF NOT EXISTS incident_group (
    id INTEGER PRIMARY KEY,
    receiver TEXT NOT NULL,
    subject TEXT NOT NULL,
    incident TEXT,
    opened_at REAL NOT NULL,
    send_at REAL NOT NULL,
    delay REAL NOT NULL,
    waits INTEGER NOT NULL DEFAULT 1,
    sent_at REAL,
    repeat_at REAL,
    closed_at REAL,
    worst_sent TEXT NOT NULL DEFAULT '',
    place TEXT,
    changes INTEGER NOT NULL DEFAULT 0,
    updated_at REAL NOT NULL DEFAULT 0,
    picture_tries INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS group_subject ON incident_group (receiver, subject, id);
CREATE INDEX IF NOT EXISTS group_incident ON incident_group (incident);
CREATE INDEX IF NOT EXISTS group_waits ON incident_group (receiver, send_at) WHERE waits;
CREATE INDEX IF NOT EXISTS group_open ON incident_group (receiver) WHERE closed_at IS NULL;
CREATE TABLE IF NOT EXISTS group_member (
    notification INTEGER NOT NULL,
    receiver TEXT NOT NULL,
    group_id INTEGER NOT NULL,
    PRIMARY KEY (notification, receiver)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS group_member_group ON group_member (group_id);
CREATE TABLE IF NOT EXISTS story (
    incident TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    changed_at REAL NOT NULL
) WITHOUT ROWID;
DROP TABLE IF EXISTS alert_group;
DROP TABLE IF EXISTS member;
SELECT id, key, state, started_at, added_at, body FROM notification LIMIT 0;
SELECT notification, receiver, outcome, attempts, next_at, in_flight FROM delivery LIMIT 0;
SELECT id, receiver, subject, incident, opened_at, send_at, delay, waits, sent_at, repeat_at,
    closed_at, worst_sent, place, changes, updated_at, picture_tries FROM incident_group LIMIT 0;
SELECT run, incident, opened_at, touched_at FROM episode LIMIT 0;
"""
"""Of a group, `subject` is an episode's id or `groups.DIGEST`, `send_at` the time of the next
message, `delay` the pause before it, and `waits` whether a notification waits to be sent.

The dropped tables are those of a version that routed; what waits in their groups is grouped anew.
The last statements fail on a file whose columns differ, which is then set aside."""
