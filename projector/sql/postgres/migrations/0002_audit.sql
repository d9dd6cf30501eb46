-- Every message of the log gets its link of the running hash, so the catalog is folded anew from the log.
DROP TABLE events;
CREATE TABLE events (
    sequence bigint PRIMARY KEY,
    event_id text COLLATE "C" NOT NULL UNIQUE CHECK (length(event_id) <= 200),
    time timestamptz NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    service text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    term text COLLATE "C" NOT NULL,
    type text NOT NULL,
    author_kind text NOT NULL,
    author_name text NOT NULL,
    payload bytea NOT NULL,
    hash bytea NOT NULL
);
CREATE INDEX events_of_instance ON events (namespace, service, instance, sequence);
CREATE INDEX events_by_time ON events (time);

DROP TABLE rejected;
CREATE TABLE rejected (
    sequence bigint PRIMARY KEY,
    time timestamptz NOT NULL,
    subject text NOT NULL,
    payload bytea NOT NULL,
    reason text NOT NULL,
    hash bytea NOT NULL
);

DELETE FROM history;
DELETE FROM instances;

DROP TABLE checkpoint;
CREATE TABLE checkpoint (
    id integer PRIMARY KEY CHECK (id = 1),
    epoch text NOT NULL,
    sequence bigint NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    head bytea NOT NULL,
    complete_from bigint NOT NULL DEFAULT 1
);

ALTER TABLE leadership ADD COLUMN written_at timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z';

CREATE VIEW instances_now AS
SELECT one.namespace, one.service, one.instance, one.term, one.revision,
       one.liveness, one.health, one.mode, one.reason,
       one.liveness = 'up' AND one.health <> 'critical' AND one.mode = 'serving' AS routable,
       one.description -> 'endpoints' -> 0 ->> 'host' AS host,
       (one.description -> 'endpoints' -> 0 ->> 'port')::integer AS port,
       one.description -> 'endpoints' -> 0 ->> 'protocol' AS protocol,
       coalesce((
           SELECT string_agg(value, ',' ORDER BY ordinality)
           FROM jsonb_array_elements_text(one.description -> 'capabilities') WITH ORDINALITY
       ), '') AS capabilities,
       one.version, one.zone, one.ttl, one.registered_at, one.changed_at,
       greatest(
           one.registered_at, leadership.written_at - make_interval(secs => leadership.clock - heard.clock)
       ) AS last_seen,
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
       CASE WHEN host LIKE '%:%' THEN '[' || host || ']' ELSE host END || ':' || port AS address, last_seen, service AS service_type, capabilities
FROM instances_now;
