"""What is said on the bus: value types, events, subjects, streams, encoding, the connection."""
