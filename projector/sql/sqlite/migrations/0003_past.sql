-- What held at a moment is found among all that began before it by this index alone.
CREATE INDEX history_by_span ON history (began_revision, ended_revision);
