-- Times are ISO 8601 text in UTC, always of the same width ("2026-02-03T04:05:06.789012Z"): they sort as text, and the
-- same literal works in a query of PostgreSQL. They are the broker's clock, to be shown; revisions order everything.

CREATE TABLE schema_version (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- The last message that was folded, and the running hash up to there; no row until the catalog is bound to a log.
-- History and events before complete_from were removed.
CREATE TABLE checkpoint (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    head BLOB NOT NULL,
    complete_from INTEGER NOT NULL DEFAULT 1
);

-- The live instances. last_sequence is that of the last message on the instance's subject.
CREATE TABLE instances (
    namespace TEXT NOT NULL,
    service TEXT NOT NULL,
    instance TEXT NOT NULL,
    term TEXT NOT NULL,
    revision INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    liveness TEXT NOT NULL,
    health TEXT NOT NULL,
    mode TEXT NOT NULL,
    reason TEXT NOT NULL,
    registered_at TEXT NOT NULL,
    changed_at TEXT NOT NULL,
    version TEXT NOT NULL,
    zone TEXT NOT NULL,
    ttl REAL NOT NULL,
    description TEXT NOT NULL,
    PRIMARY KEY (namespace, service, instance)
);

-- Every version of every instance: which event began it and which ended it (no ended_* while it holds).
CREATE TABLE history (
    began_revision INTEGER PRIMARY KEY,
    began_at TEXT NOT NULL,
    began_by TEXT NOT NULL,
    ended_revision INTEGER,
    ended_at TEXT,
    ended_by TEXT,
    namespace TEXT NOT NULL,
    service TEXT NOT NULL,
    instance TEXT NOT NULL,
    term TEXT NOT NULL,
    liveness TEXT NOT NULL,
    health TEXT NOT NULL,
    mode TEXT NOT NULL,
    reason TEXT NOT NULL,
    registered_at TEXT NOT NULL,
    description TEXT NOT NULL
);
CREATE INDEX history_of_instance ON history (namespace, service, instance, began_revision);
CREATE UNIQUE INDEX history_open ON history (namespace, service, instance) WHERE ended_revision IS NULL;
CREATE INDEX history_by_revision ON history (ended_revision, began_revision);
CREATE INDEX history_by_time ON history (ended_at, began_at);
CREATE INDEX history_by_span ON history (began_revision, ended_revision);

-- The log's events, the payload as it was; hash is the running hash of the log up to there (events/chain.py). The length of an id is bounded so that both databases take the same ones.
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY,
    event_id TEXT NOT NULL UNIQUE CHECK (length(event_id) <= 200),
    time TEXT NOT NULL,
    namespace TEXT NOT NULL,
    service TEXT NOT NULL,
    instance TEXT NOT NULL,
    term TEXT NOT NULL,
    type TEXT NOT NULL,
    author_kind TEXT NOT NULL,
    author_name TEXT NOT NULL,
    payload BLOB NOT NULL,
    hash BLOB NOT NULL
);
CREATE INDEX events_of_instance ON events (namespace, service, instance, sequence);
CREATE INDEX events_by_time ON events (time);

-- What could not be read or stored, raw, with the reason.
CREATE TABLE rejected (
    sequence INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    subject TEXT NOT NULL,
    payload BLOB NOT NULL,
    reason TEXT NOT NULL,
    hash BLOB NOT NULL
);

-- What the leader keeps, fenced by its generation. Clocks are seconds of observed time, not of any calendar.
CREATE TABLE leadership (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    generation INTEGER NOT NULL,
    clock REAL NOT NULL,
    announced INTEGER NOT NULL,
    written_at TEXT NOT NULL DEFAULT '1970-01-01T00:00:00.000Z'
);
INSERT INTO leadership (id, generation, clock, announced) VALUES (1, 0, 0, 0);

-- The last heartbeat of each life: its counter, and the observed clock when it was read.
CREATE TABLE heard (
    term TEXT NOT NULL PRIMARY KEY,
    counter INTEGER NOT NULL,
    clock REAL NOT NULL
) WITHOUT ROWID;

-- Services whose mass expiry the guard holds back, since a value of the observed clock.
CREATE TABLE held (
    namespace TEXT NOT NULL,
    service TEXT NOT NULL,
    clock REAL NOT NULL,
    PRIMARY KEY (namespace, service)
) WITHOUT ROWID;

-- Who is there now, with what most queries want of the description. last_seen is by the clock of this database.
CREATE VIEW instances_now AS
SELECT one.namespace, one.service, one.instance, one.term, one.revision,
       one.liveness, one.health, one.mode, one.reason,
       one.liveness = 'up' AND one.health <> 'critical' AND one.mode = 'serving' AS routable,
       json_extract(one.description, '$.endpoints[0].host') AS host,
       json_extract(one.description, '$.endpoints[0].port') AS port,
       json_extract(one.description, '$.endpoints[0].protocol') AS protocol,
       (SELECT coalesce(group_concat(value, ','), '') FROM json_each(one.description, '$.capabilities')) AS capabilities,
       one.version, one.zone, one.ttl, one.registered_at, one.changed_at,
       CASE WHEN heard.clock IS NULL THEN one.registered_at ELSE max(
           one.registered_at,
           strftime('%Y-%m-%dT%H:%M:%fZ', leadership.written_at, printf('%.3f seconds', heard.clock - leadership.clock))
       ) END AS last_seen,
       one.description
FROM instances AS one
CROSS JOIN leadership
LEFT JOIN heard ON heard.term = one.term;

-- Every version of every instance, with whether callers might choose it then.
CREATE VIEW instance_history AS
SELECT namespace, service, instance, term,
       began_revision, began_at, began_by, ended_revision, ended_at, ended_by,
       liveness, health, mode, reason,
       liveness = 'up' AND health <> 'critical' AND mode = 'serving' AS routable,
       registered_at, description
FROM history;

-- What queries written for a classic table of heartbeats expect.
CREATE VIEW ingesters AS
SELECT instance AS id,
       CASE WHEN host LIKE '%:%' THEN '[' || host || ']' ELSE host END || ':' || port AS address,
       strftime('%Y-%m-%d %H:%M:%S', last_seen) AS last_seen, service AS service_type, capabilities
FROM instances_now;
