-- The queries of the catalog, as PostgreSQL wants them: written rows as one array a column, unnested. A row is looked up
-- by LATERAL with LIMIT 1: one descent of an index each, where a join may become a scan while statistics are missing.

-- name: has_schema
SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('schema_version');

-- name: schema_version
SELECT coalesce(max(version), 0) FROM schema_version;

-- name: record_migration
INSERT INTO schema_version (version, name) VALUES ($1, $2);

-- name: checkpoint
SELECT epoch, sequence, event_id, head FROM checkpoint;

-- name: begin_checkpoint
INSERT INTO checkpoint (id, epoch, sequence, event_id, head) VALUES (1, $1, 0, '', decode(repeat('00', 32), 'hex'))
ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch WHERE checkpoint.sequence = 0;

-- name: move_checkpoint
UPDATE checkpoint SET sequence = $4, event_id = $5, head = $6
WHERE epoch = $1 AND sequence = $2 AND event_id = $3;

-- name: records
SELECT namespace, service, instance, term, revision, last_sequence,
       liveness, health, mode, reason, registered_at, changed_at, description
FROM instances ORDER BY namespace, service, instance;

-- name: set_aside
SELECT count(*) FROM rejected;

-- name: namespaces
WITH RECURSIVE step (namespace) AS (
    SELECT min(namespace) FROM history
    UNION ALL
    SELECT (SELECT min(namespace) FROM history WHERE namespace > step.namespace) FROM step
    WHERE step.namespace IS NOT NULL
)
SELECT namespace FROM step WHERE namespace IS NOT NULL;

-- name: folded
SELECT event_id FROM events WHERE event_id = ANY ($1::text[]);

-- name: departures
SELECT wanted.namespace, wanted.service, wanted.instance, last.term, last.ended_revision, last.ended_by
FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (namespace, service, instance)
CROSS JOIN LATERAL (
    SELECT term, ended_revision, ended_by FROM history
    WHERE namespace = wanted.namespace AND service = wanted.service AND instance = wanted.instance
    ORDER BY began_revision DESC LIMIT 1
) AS last
WHERE last.ended_revision IS NOT NULL;

-- name: insert_events
INSERT INTO events
    (sequence, event_id, time, namespace, service, instance, term, type, author_kind, author_name, payload, hash)
SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::text[], $10::text[], $11::bytea[], $12::bytea[]
);

-- name: insert_rejected
INSERT INTO rejected (sequence, time, subject, payload, reason, hash)
SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::bytea[], $5::text[], $6::bytea[]);

-- name: end_versions
UPDATE history SET ended_revision = ended.revision, ended_at = ended.at, ended_by = ended.cause
FROM unnest($1::bigint[], $2::bigint[], $3::timestamptz[], $4::text[]) AS ended (began, revision, at, cause)
CROSS JOIN LATERAL (SELECT began_revision FROM history WHERE began_revision = ended.began LIMIT 1) AS open
WHERE history.began_revision = open.began_revision;

-- name: begin_versions
INSERT INTO history
    (began_revision, began_at, began_by, ended_revision, ended_at, ended_by, namespace, service, instance,
     term, liveness, health, mode, reason, registered_at, description)
SELECT * FROM unnest(
    $1::bigint[], $2::timestamptz[], $3::text[], $4::bigint[], $5::timestamptz[], $6::text[],
    $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[],
    $15::timestamptz[], $16::jsonb[]
);

-- name: upsert_instances
INSERT INTO instances
    (namespace, service, instance, term, revision, last_sequence, liveness, health, mode, reason,
     registered_at, changed_at, version, zone, ttl, description)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::timestamptz[], $12::timestamptz[], $13::text[], $14::text[], $15::double precision[], $16::jsonb[]
)
ON CONFLICT (namespace, service, instance) DO UPDATE SET
    term = excluded.term, revision = excluded.revision, last_sequence = excluded.last_sequence,
    liveness = excluded.liveness, health = excluded.health, mode = excluded.mode, reason = excluded.reason,
    registered_at = excluded.registered_at, changed_at = excluded.changed_at, version = excluded.version,
    zone = excluded.zone, ttl = excluded.ttl, description = excluded.description;

-- name: delete_instances
DELETE FROM instances USING unnest($1::text[], $2::text[], $3::text[]) AS gone (namespace, service, instance)
CROSS JOIN LATERAL (
    SELECT ctid FROM instances
    WHERE namespace = gone.namespace AND service = gone.service AND instance = gone.instance
    LIMIT 1
) AS present
WHERE instances.ctid = present.ctid;

-- name: take_generation
UPDATE leadership SET generation = generation + 1;

-- name: leadership
SELECT generation, clock, announced FROM leadership;

-- name: heard
SELECT term, counter, clock FROM heard ORDER BY term;

-- name: held
SELECT namespace, service, clock FROM held ORDER BY namespace, service;

-- name: observe
UPDATE leadership SET clock = $2, announced = $3, written_at = now()
WHERE generation = $1;

-- name: upsert_heard
INSERT INTO heard (term, counter, clock)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::double precision[])
ON CONFLICT (term) DO UPDATE SET counter = excluded.counter, clock = excluded.clock;

-- name: delete_heard
DELETE FROM heard WHERE term = ANY ($1::text[]);

-- name: clear_held
DELETE FROM held;

-- name: insert_held
INSERT INTO held (namespace, service, clock)
SELECT * FROM unnest($1::text[], $2::text[], $3::double precision[]);

-- name: extent
SELECT epoch, sequence, head, complete_from FROM checkpoint;

-- name: first_logged
SELECT sequence, time FROM events ORDER BY sequence LIMIT 1;

-- Not the event that is last by time: the clock may have been put back. A recent time is found among the last events;
-- for any other the index on time, which has the sequences, is read up to it: the plus keeps the table from being walked.
-- name: revision_at
SELECT coalesce(
    (SELECT max(sequence) FROM (SELECT sequence, time FROM events ORDER BY sequence DESC LIMIT $2) AS recent
     WHERE time <= $1),
    (SELECT max(sequence + 0) FROM events WHERE time <= $1)
);

-- name: next_began
SELECT min(began_revision) FROM history WHERE began_revision > $1;

-- Of a short time: few of those that began before it held then, and the index alone tells which.
-- name: versions_at
SELECT version.*
FROM (
    SELECT began_revision FROM history
    WHERE began_revision > $1 AND began_revision <= $2 AND (ended_revision IS NULL OR ended_revision > $3)
    ORDER BY began_revision OFFSET 0
) AS held
CROSS JOIN LATERAL (
    SELECT namespace, service, instance, term, began_revision, began_at, began_by, ended_revision, ended_at, ended_by,
           liveness, health, mode, reason, registered_at, description
    FROM history
    WHERE began_revision = held.began_revision
      AND ($4::text = '' OR namespace = $4) AND ($5::text = '' OR service = $5) AND ($6::text = '' OR instance = $6)
    LIMIT 1
) AS version
ORDER BY held.began_revision LIMIT $7;

-- Of a long time: most of what began in it held in it.
-- name: versions_between
SELECT namespace, service, instance, term, began_revision, began_at, began_by, ended_revision, ended_at, ended_by,
       liveness, health, mode, reason, registered_at, description
FROM history
WHERE began_revision > $1 AND began_revision <= $2 AND (ended_revision IS NULL OR ended_revision > $3)
  AND ($4::text = '' OR namespace = $4) AND ($5::text = '' OR service = $5) AND ($6::text = '' OR instance = $6)
ORDER BY began_revision LIMIT $7;

-- name: versions_of_instance
SELECT namespace, service, instance, term, began_revision, began_at, began_by, ended_revision, ended_at, ended_by,
       liveness, health, mode, reason, registered_at, description
FROM history
WHERE began_revision > $1 AND began_revision <= $2 AND (ended_revision IS NULL OR ended_revision > $3)
  AND namespace = $4 AND service = $5 AND instance = $6
ORDER BY began_revision LIMIT $7;

-- name: next_logged
SELECT min(sequence) FROM events WHERE sequence > $1;

-- name: logged
SELECT sequence, time, namespace, service, instance, payload FROM events
WHERE sequence > $1 AND sequence <= $2 AND ($3::text = '' OR position(',' || type || ',' IN $3) > 0)
  AND ($4::text = '' OR namespace = $4) AND ($5::text = '' OR service = $5) AND ($6::text = '' OR instance = $6)
ORDER BY sequence LIMIT $7;

-- name: logged_of_instance
SELECT sequence, time, namespace, service, instance, payload FROM events
WHERE sequence > $1 AND sequence <= $2 AND ($3::text = '' OR position(',' || type || ',' IN $3) > 0)
  AND namespace = $4 AND service = $5 AND instance = $6
ORDER BY sequence LIMIT $7;

-- name: forget
UPDATE checkpoint SET complete_from = $1::bigint + 1 WHERE complete_from <= $1::bigint AND sequence >= $1::bigint;

-- name: forget_events
DELETE FROM events WHERE sequence IN (
    SELECT sequence FROM events WHERE sequence <= $1::bigint ORDER BY sequence LIMIT $2::bigint
);

-- name: forget_rejected
DELETE FROM rejected WHERE sequence IN (
    SELECT sequence FROM rejected WHERE sequence <= $1::bigint ORDER BY sequence LIMIT $2::bigint
);

-- name: forget_versions
DELETE FROM history WHERE began_revision IN (
    SELECT began_revision FROM history WHERE ended_revision <= $1::bigint ORDER BY ended_revision LIMIT $2::bigint
);

-- name: stands
SELECT epoch, sequence, event_id, head, complete_from FROM checkpoint;

-- name: all_events
SELECT sequence, event_id, time, namespace, service, instance, term, type, author_kind, author_name, payload, hash
FROM events ORDER BY sequence;

-- name: all_rejected
SELECT sequence, time, subject, payload, reason, hash FROM rejected ORDER BY sequence;

-- name: all_history
SELECT began_revision, began_at, began_by, ended_revision, ended_at, ended_by, namespace, service, instance,
       term, liveness, health, mode, reason, registered_at, description
FROM history ORDER BY began_revision;

-- name: all_instances
SELECT namespace, service, instance, term, revision, last_sequence, liveness, health, mode, reason,
       registered_at, changed_at, version, zone, ttl, description
FROM instances ORDER BY namespace, service, instance;
