-- The queries of the catalog, as SQLite wants them: written rows one execution each, lists as one JSON argument.

-- name: has_schema
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_version';

-- name: schema_version
SELECT coalesce(max(version), 0) FROM schema_version;

-- name: record_migration
INSERT INTO schema_version (version, name) VALUES (?1, ?2);

-- name: checkpoint
SELECT epoch, sequence, event_id, head FROM checkpoint;

-- name: begin_checkpoint
INSERT INTO checkpoint (id, epoch, sequence, event_id, head) VALUES (1, ?1, 0, '', zeroblob(32))
ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch WHERE sequence = 0;

-- name: move_checkpoint
UPDATE checkpoint SET sequence = ?4, event_id = ?5, head = ?6
WHERE epoch = ?1 AND sequence = ?2 AND event_id = ?3;

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
SELECT event_id FROM events WHERE event_id IN (SELECT value FROM json_each(?1));

-- name: departures
SELECT last.namespace, last.service, last.instance, last.term, last.ended_revision, last.ended_by
FROM json_each(?1) AS wanted
JOIN history AS last ON last.began_revision = (
    SELECT began_revision FROM history
    WHERE namespace = json_extract(wanted.value, '$[0]')
      AND service = json_extract(wanted.value, '$[1]')
      AND instance = json_extract(wanted.value, '$[2]')
    ORDER BY began_revision DESC LIMIT 1
)
WHERE last.ended_revision IS NOT NULL;

-- name: insert_events
INSERT INTO events
    (sequence, event_id, time, namespace, service, instance, term, type, author_kind, author_name, payload, hash)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12);

-- name: insert_rejected
INSERT INTO rejected (sequence, time, subject, payload, reason, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: end_versions
UPDATE history SET ended_revision = ?2, ended_at = ?3, ended_by = ?4 WHERE began_revision = ?1;

-- name: begin_versions
INSERT INTO history
    (began_revision, began_at, began_by, ended_revision, ended_at, ended_by, namespace, service, instance,
     term, liveness, health, mode, reason, registered_at, description)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16);

-- name: upsert_instances
INSERT INTO instances
    (namespace, service, instance, term, revision, last_sequence, liveness, health, mode, reason,
     registered_at, changed_at, version, zone, ttl, description)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
ON CONFLICT (namespace, service, instance) DO UPDATE SET
    term = excluded.term, revision = excluded.revision, last_sequence = excluded.last_sequence,
    liveness = excluded.liveness, health = excluded.health, mode = excluded.mode, reason = excluded.reason,
    registered_at = excluded.registered_at, changed_at = excluded.changed_at, version = excluded.version,
    zone = excluded.zone, ttl = excluded.ttl, description = excluded.description;

-- name: delete_instances
DELETE FROM instances WHERE namespace = ?1 AND service = ?2 AND instance = ?3;

-- name: take_generation
UPDATE leadership SET generation = generation + 1;

-- name: leadership
SELECT generation, clock, announced FROM leadership;

-- name: heard
SELECT term, counter, clock FROM heard ORDER BY term;

-- name: held
SELECT namespace, service, clock FROM held ORDER BY namespace, service;

-- name: observe
UPDATE leadership SET clock = ?2, announced = ?3, written_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE generation = ?1;

-- name: upsert_heard
INSERT INTO heard (term, counter, clock) VALUES (?1, ?2, ?3)
ON CONFLICT (term) DO UPDATE SET counter = excluded.counter, clock = excluded.clock;

-- name: delete_heard
DELETE FROM heard WHERE term = ?1;

-- name: clear_held
DELETE FROM held;

-- name: insert_held
INSERT INTO held (namespace, service, clock) VALUES (?1, ?2, ?3);

-- name: extent
SELECT epoch, sequence, head, complete_from FROM checkpoint;

-- name: first_logged
SELECT sequence, time FROM events ORDER BY sequence LIMIT 1;

-- Not the event that is last by time: the clock may have been put back. A recent time is found among the last events;
-- for any other the index on time, which has the sequences, is read up to it: the plus keeps the table from being walked.
-- name: revision_at
SELECT coalesce(
    (SELECT max(sequence) FROM (SELECT sequence, time FROM events ORDER BY sequence DESC LIMIT ?2) AS recent
     WHERE time <= ?1),
    (SELECT max(+sequence) FROM events WHERE time <= ?1)
);

-- name: next_began
SELECT min(began_revision) FROM history WHERE began_revision > ?1;

-- Both read the index first, and a row only where that says that it held.
-- name: versions_at
SELECT namespace, service, instance, term, began_revision, began_at, began_by, ended_revision, ended_at, ended_by,
       liveness, health, mode, reason, registered_at, description
FROM history INDEXED BY history_by_span
WHERE began_revision > ?1 AND began_revision <= ?2 AND (ended_revision IS NULL OR ended_revision > ?3)
  AND (?4 = '' OR namespace = ?4) AND (?5 = '' OR service = ?5) AND (?6 = '' OR instance = ?6)
ORDER BY began_revision LIMIT ?7;

-- name: versions_between
SELECT namespace, service, instance, term, began_revision, began_at, began_by, ended_revision, ended_at, ended_by,
       liveness, health, mode, reason, registered_at, description
FROM history INDEXED BY history_by_span
WHERE began_revision > ?1 AND began_revision <= ?2 AND (ended_revision IS NULL OR ended_revision > ?3)
  AND (?4 = '' OR namespace = ?4) AND (?5 = '' OR service = ?5) AND (?6 = '' OR instance = ?6)
ORDER BY began_revision LIMIT ?7;

-- name: versions_of_instance
SELECT namespace, service, instance, term, began_revision, began_at, began_by, ended_revision, ended_at, ended_by,
       liveness, health, mode, reason, registered_at, description
FROM history
WHERE began_revision > ?1 AND began_revision <= ?2 AND (ended_revision IS NULL OR ended_revision > ?3)
  AND namespace = ?4 AND service = ?5 AND instance = ?6
ORDER BY began_revision LIMIT ?7;

-- name: next_logged
SELECT min(sequence) FROM events WHERE sequence > ?1;

-- name: logged
SELECT sequence, time, namespace, service, instance, payload FROM events
WHERE sequence > ?1 AND sequence <= ?2 AND (?3 = '' OR instr(?3, ',' || type || ',') > 0)
  AND (?4 = '' OR namespace = ?4) AND (?5 = '' OR service = ?5) AND (?6 = '' OR instance = ?6)
ORDER BY sequence LIMIT ?7;

-- name: logged_of_instance
SELECT sequence, time, namespace, service, instance, payload FROM events
WHERE sequence > ?1 AND sequence <= ?2 AND (?3 = '' OR instr(?3, ',' || type || ',') > 0)
  AND namespace = ?4 AND service = ?5 AND instance = ?6
ORDER BY sequence LIMIT ?7;

-- name: forget
UPDATE checkpoint SET complete_from = ?1 + 1 WHERE complete_from <= ?1 AND sequence >= ?1;

-- name: forget_events
DELETE FROM events WHERE sequence IN (
    SELECT sequence FROM events WHERE sequence <= ?1 ORDER BY sequence LIMIT ?2
);

-- name: forget_rejected
DELETE FROM rejected WHERE sequence IN (
    SELECT sequence FROM rejected WHERE sequence <= ?1 ORDER BY sequence LIMIT ?2
);

-- name: forget_versions
DELETE FROM history WHERE began_revision IN (
    SELECT began_revision FROM history WHERE ended_revision <= ?1 ORDER BY ended_revision LIMIT ?2
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
