-- Times are the broker's clock, to be shown, to the microsecond; revisions order everything. Names sort by their bytes
-- (COLLATE "C"), as in SQLite and in Python, whatever the locale of the database.

CREATE TABLE schema_version (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- The last message that was folded, and the running hash up to there; no row until the catalog is bound to a log.
-- History and events before complete_from were removed.
CREATE TABLE checkpoint (
    id integer PRIMARY KEY CHECK (id = 1),
    epoch text NOT NULL,
    sequence bigint NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    head bytea NOT NULL,
    complete_from bigint NOT NULL DEFAULT 1
);

-- The live instances. last_sequence is that of the last message on the instance's subject.
CREATE TABLE instances (
    namespace text COLLATE "C" NOT NULL,
    service text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    term text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    last_sequence bigint NOT NULL,
    liveness text NOT NULL,
    health text NOT NULL,
    mode text NOT NULL,
    reason text NOT NULL,
    registered_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    version text NOT NULL,
    zone text NOT NULL,
    ttl double precision NOT NULL,
    description jsonb NOT NULL,
    PRIMARY KEY (namespace, service, instance)
) WITH (fillfactor = 80);

-- Every version of every instance: which event began it and which ended it (no ended_* while it holds).
CREATE TABLE history (
    began_revision bigint PRIMARY KEY,
    began_at timestamptz NOT NULL,
    began_by text NOT NULL,
    ended_revision bigint,
    ended_at timestamptz,
    ended_by text,
    namespace text COLLATE "C" NOT NULL,
    service text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    term text COLLATE "C" NOT NULL,
    liveness text NOT NULL,
    health text NOT NULL,
    mode text NOT NULL,
    reason text NOT NULL,
    registered_at timestamptz NOT NULL,
    description jsonb NOT NULL
);
CREATE INDEX history_of_instance ON history (namespace, service, instance, began_revision);
CREATE UNIQUE INDEX history_open ON history (namespace, service, instance) WHERE ended_revision IS NULL;
CREATE INDEX history_by_revision ON history (ended_revision, began_revision);
CREATE INDEX history_by_time ON history (ended_at, began_at);
CREATE INDEX history_by_span ON history (began_revision, ended_revision);

-- The log's events, the payload as it was; hash is the running hash of the log up to there (events/chain.py). The length of an id is bounded so that both databases take the same ones.
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
CREATE INDEX events_by_time ON events (time, sequence);

-- What could not be read or stored, raw, with the reason.
CREATE TABLE rejected (
    sequence bigint PRIMARY KEY,
    time timestamptz NOT NULL,
    subject text NOT NULL,
    payload bytea NOT NULL,
    reason text NOT NULL,
    hash bytea NOT NULL
);

-- What the leader keeps, fenced by its generation. Clocks are seconds of observed time, not of any calendar.
CREATE TABLE leadership (
    id integer PRIMARY KEY CHECK (id = 1),
    generation bigint NOT NULL,
    clock double precision NOT NULL,
    announced bigint NOT NULL,
    written_at timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z'
);
INSERT INTO leadership (id, generation, clock, announced) VALUES (1, 0, 0, 0);

-- The last heartbeat of each life: its counter, and the observed clock when it was read.
CREATE TABLE heard (
    term text COLLATE "C" NOT NULL PRIMARY KEY,
    counter bigint NOT NULL,
    clock double precision NOT NULL
) WITH (fillfactor = 50);  -- room for updates in place: no index is touched, dead rows are reused at once

-- Services whose mass expiry the guard holds back, since a value of the observed clock.
CREATE TABLE held (
    namespace text COLLATE "C" NOT NULL,
    service text COLLATE "C" NOT NULL,
    clock double precision NOT NULL,
    PRIMARY KEY (namespace, service)
);

-- Who is there now, with what most queries want of the description. last_seen is by the clock of this database.
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
       CASE WHEN host LIKE '%:%' THEN '[' || host || ']' ELSE host END || ':' || port AS address, last_seen, service AS service_type, capabilities
FROM instances_now;
