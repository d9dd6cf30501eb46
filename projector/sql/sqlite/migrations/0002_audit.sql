-- Every message of the log gets its link of the running hash, so the catalog is folded anew from the log.
DROP TABLE events;
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

DROP TABLE rejected;
CREATE TABLE rejected (
    sequence INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    subject TEXT NOT NULL,
    payload BLOB NOT NULL,
    reason TEXT NOT NULL,
    hash BLOB NOT NULL
);

DELETE FROM history;
DELETE FROM instances;

DROP TABLE checkpoint;
CREATE TABLE checkpoint (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    head BLOB NOT NULL,
    complete_from INTEGER NOT NULL DEFAULT 1
);

ALTER TABLE leadership ADD COLUMN written_at TEXT NOT NULL DEFAULT '1970-01-01T00:00:00.000Z';

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

CREATE VIEW instance_history AS
SELECT namespace, service, instance, term,
       began_revision, began_at, began_by, ended_revision, ended_at, ended_by,
       liveness, health, mode, reason,
       liveness = 'up' AND health <> 'critical' AND mode = 'serving' AS routable,
       registered_at, description
FROM history;

CREATE VIEW ingesters AS
SELECT instance AS id,
       CASE WHEN host LIKE '%:%' THEN '[' || host || ']' ELSE host END || ':' || port AS address,
       strftime('%Y-%m-%d %H:%M:%S', last_seen) AS last_seen, service AS service_type, capabilities
FROM instances_now;
